"""Switchboards with real gRPC servers in one loop, and a relay that breaks connections, for tests of links."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import structlog

from services.events import Event
from services.shell.options import ShellOptions, TransportOptions
from services.shell.server import RoleServer
from services.shell.switchboard import Switchboard

FAST = TransportOptions(heartbeat_ms=20.0)


class Party:
    """One role's links without the role: its events are kept."""

    def __init__(self, role: str, launch: int = 1, **changes: Any) -> None:
        base = ShellOptions(role, launch, "run-1", "secret", folder=".", transport=FAST)
        self.options = replace(base, **changes)
        self.events: list[Event] = []
        self.errors: list[BaseException] = []
        self.entries: list[dict[str, Any]] = []
        log = structlog.wrap_logger(None, processors=[self._keep], wrapper_class=structlog.BoundLogger)
        self.board = Switchboard(self.options, self.events.append, self.errors.append, log)
        self.server = RoleServer(self.options, self.board, log)

    async def start(self) -> Party:
        await self.server.start()
        await self.server.open()
        return self

    @property
    def address(self) -> str:
        return self.server.address

    def of(self, kind: type) -> list[Any]:
        return [event for event in self.events if isinstance(event, kind)]

    def logged(self, event: str) -> list[dict[str, Any]]:
        return [entry for entry in self.entries if entry["event"] == event]

    async def stop(self) -> None:
        await self.board.close()
        await self.server.stop()
        assert self.errors == []

    def _keep(self, _logger: Any, _method: str, entry: Any) -> Any:
        self.entries.append(dict(entry))
        raise structlog.DropEvent


async def until(condition: Callable[[], Any], timeout_s: float = 10.0) -> None:
    """Wait for the condition; fails when the time is over."""
    async with asyncio.timeout(timeout_s):
        while not condition():
            await asyncio.sleep(0.001)


class Relay:
    """A TCP relay in front of `target` whose connections can be reset, refused or stalled."""

    def __init__(self, target: str) -> None:
        self.target = target
        self.address = ""
        self.connections = 0
        self.refusing = False
        self._writers: set[asyncio.StreamWriter] = set()
        self._tasks: set[asyncio.Task[None]] = set()
        self._flowing = asyncio.Event()
        self._flowing.set()

    async def start(self) -> Relay:
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        self.address = f"127.0.0.1:{self._server.sockets[0].getsockname()[1]}"
        return self

    def reset(self) -> None:
        """Break every connection at once, as a crashed router would."""
        for writer in list(self._writers):
            writer.transport.abort()

    def stall(self) -> None:
        """Nothing gets through any more; connections stay."""
        self._flowing.clear()

    def resume(self) -> None:
        self._flowing.set()

    async def stop(self) -> None:
        self.reset()
        self._flowing.set()
        self._server.close()
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.refusing:
            writer.transport.abort()
            return
        self.connections += 1
        host, _, port = self.target.rpartition(":")
        there, back = await asyncio.open_connection(host, int(port))
        for source, sink in ((reader, back), (there, writer)):
            self._writers.add(sink)
            task = asyncio.ensure_future(self._copy(source, sink))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)

    async def _copy(self, source: asyncio.StreamReader, sink: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError):
            while data := await source.read(65_536):
                await self._flowing.wait()
                sink.write(data)
                await sink.drain()
        self._writers.discard(sink)
        sink.transport.abort()
