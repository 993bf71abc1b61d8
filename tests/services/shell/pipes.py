"""A stream within one process: two ends, each direction holding a few frames, as gRPC's flow control does."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any

from services.shell.stream import StreamBroken


class PipeEnd:
    """One end; an implementation of `services.shell.stream.Stream`. Asserts what gRPC demands of its users."""

    def __init__(self, inbound: asyncio.Queue[bytes | None], outbound: asyncio.Queue[bytes | None]) -> None:
        self._inbound = inbound
        self._outbound = outbound
        self._closed = asyncio.Event()
        self._writing = False
        self.frame_bytes_max = 0

    @property
    def remote(self) -> str:
        return "pipe"

    async def read(self) -> bytes:
        data: bytes | None = await self._or_closed(self._inbound.get())
        if data is None:
            raise StreamBroken("ended by the other side")
        return data

    async def write(self, data: bytes) -> None:
        assert not self._writing, "two writes at once"
        self._writing = True
        self.frame_bytes_max = max(self.frame_bytes_max, len(data))
        await self._or_closed(self._outbound.put(data))
        self._writing = False

    async def finish(self, reason: str) -> None:
        await self._or_closed(self._outbound.put(None))

    def close(self, reason: str) -> None:
        self._closed.set()

    async def _or_closed(self, operation: Coroutine[Any, Any, Any]) -> Any:
        work = asyncio.ensure_future(operation)
        closed = asyncio.ensure_future(self._closed.wait())
        try:
            await asyncio.wait((work, closed), return_when=asyncio.FIRST_COMPLETED)
            if not work.done():
                raise StreamBroken("closed")
            return work.result()
        finally:
            work.cancel()
            closed.cancel()


def pipe(frames_max: int = 4) -> tuple[PipeEnd, PipeEnd]:
    """Both ends of a stream that holds `frames_max` frames in each direction."""
    there: asyncio.Queue[bytes | None] = asyncio.Queue(frames_max)
    back: asyncio.Queue[bytes | None] = asyncio.Queue(frames_max)
    return PipeEnd(back, there), PipeEnd(there, back)
