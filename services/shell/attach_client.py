"""The driver's end of an attachment: dial a listening host, say what it is to be, then start and signal its launches.

    host = AttachedHost("10.0.0.2:7070", run_id, token, heard)
    claim = await host.dial()             # what it was started for
    await host.attach(hello)              # raises AttachError with the host's own reason
    host.send(StartLaunch(…))  # and `heard(response)` is called for all that comes back

`heard(None)` says that the host is gone. Duty of the caller: `await host.close()` on every way out.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Callable
from typing import Any

import grpc

from services.shell.attach_frames import (
    Attached,
    AttachHello,
    Detach,
    HostClaim,
    Request,
    Response,
    read_response,
    request_bytes,
)
from services.shell.attach_server import ATTACH_METHOD
from services.shell.channel import call_metadata, channel_options
from services.shell.options import TransportOptions
from services.shell.stream import ClientStream, StreamBroken
from services.wire_error import WireError
from training.errors import GradstormError

_CONNECT_S = 30.0
_DETACH_S = 2.0
_NOBODY = grpc.StatusCode.UNAVAILABLE.name

Heard = Callable[[Response | None], None]


class AttachError(GradstormError):
    """A host that is not what this run needs; the text says which and why."""


class Unreachable(AttachError):
    """Nobody answers at that address, yet."""


class AttachedHost:
    """One host. Belongs to one asyncio loop."""

    def __init__(self, address: str, run_id: str, token: str, heard: Heard) -> None:
        self.address = address
        self.why_lost = ""
        self._heard = heard
        self._channel = grpc.aio.insecure_channel(address, options=channel_options(TransportOptions()))
        call: Any = self._channel.stream_stream(ATTACH_METHOD)(metadata=call_metadata(run_id, token))
        self._stream = ClientStream(call, address)
        self._outbox: asyncio.Queue[Request] = asyncio.Queue()
        self._tasks: list[asyncio.Task[None]] = []
        self._closing = False

    async def dial(self) -> HostClaim:
        """Raises AttachError."""
        async with _answering(self.address):
            await self._stream.admitted()
            claim = read_response(await self._stream.read(), self.address)
        assert isinstance(claim, HostClaim), claim
        return claim

    async def attach(self, hello: AttachHello) -> None:
        """From here on `heard` is told of everything. Raises AttachError when the host refuses."""
        async with _answering(self.address):
            await self._stream.write(request_bytes(hello))
            answer = read_response(await self._stream.read(), self.address)
        assert isinstance(answer, Attached), answer
        loop = asyncio.get_running_loop()
        self._tasks = [loop.create_task(self._read_all()), loop.create_task(self._write_all())]

    def send(self, request: Request) -> None:
        """In order, when the stream takes it."""
        self._outbox.put_nowait(request)

    async def close(self) -> None:
        """Let the host go."""
        self._closing = True
        if self._tasks and not self.why_lost:
            self.send(Detach())
            await asyncio.wait(self._tasks[:1], timeout=_DETACH_S)
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        await self._channel.close()

    async def _read_all(self) -> None:
        try:
            while True:
                self._heard(read_response(await self._stream.read(), self.address))
        except (StreamBroken, WireError) as error:
            self.why_lost = str(error)
            if not self._closing:
                self._heard(None)

    async def _write_all(self) -> None:
        while True:
            request = await self._outbox.get()
            try:
                await self._stream.write(request_bytes(request))
            except StreamBroken:
                return  # the reader notices as well and tells of it


@contextlib.asynccontextmanager
async def _answering(address: str) -> AsyncIterator[None]:
    """Bounds what is said to a host, and turns what goes wrong into an AttachError that names it."""
    try:
        async with asyncio.timeout(_CONNECT_S):
            yield
    except TimeoutError:
        raise Unreachable(f"no answer from {address} within {_CONNECT_S:g} s") from None
    except (StreamBroken, WireError) as error:
        kind = Unreachable if _NOBODY in str(error) else AttachError
        raise kind(f"{address}: {error}") from None
