"""The two ends of a gRPC stream of bytes, made alike.

`ClientStream` dials, `ServerStream` stands in a handler. Both read and write one frame at a time; whatever gRPC or
asyncio raises when a stream breaks becomes `StreamBroken` with a reason for the log.
"""

from __future__ import annotations

import asyncio
from typing import Any, Protocol

import grpc

_BREAKS = (grpc.aio.BaseError, grpc.RpcError, asyncio.InvalidStateError)


ADMITTED = (("gradstorm-admitted", "1"),)  # a server's initial metadata when it lets a call in


class StreamBroken(Exception):
    """The stream is over; the text says why, as far as is known."""


class Stream(Protocol):
    """One end of a stream. One reader and one writer at a time."""

    async def read(self) -> bytes:
        """The next frame's bytes. Raises StreamBroken at the end."""
        ...

    async def write(self, data: bytes) -> None:
        """Hand one frame to gRPC, which may wait for the other side. Raises StreamBroken."""
        ...

    async def finish(self, reason: str) -> None:
        """Let what was written arrive, then end it; `read` goes on until the other side has ended it too."""
        ...

    def close(self, reason: str) -> None:
        """End it now; pending reads and writes raise StreamBroken, and what was written may be lost."""
        ...

    @property
    def remote(self) -> str:
        """The other end's network address, for the log."""
        ...


class ClientStream:
    """The dialling end: a call on a channel."""

    def __init__(self, call: Any, address: str) -> None:
        self._call = call
        self._closed = ""
        self._address = address

    @property
    def remote(self) -> str:
        return self._address

    async def admitted(self) -> None:
        """Wait until the other side has let the call in. Raises StreamBroken with its reason when it has not."""
        metadata = await self._guarded(self._call.initial_metadata())
        if ADMITTED[0] not in {(key, value) for key, value in metadata or ()}:
            raise StreamBroken(await self._status())

    async def read(self) -> bytes:
        data = await self._guarded(self._call.read())
        if data is grpc.aio.EOF:
            raise StreamBroken(self._closed or await self._status())
        return data  # type: ignore[no-any-return]

    async def write(self, data: bytes) -> None:
        await self._guarded(self._call.write(data))

    async def finish(self, reason: str) -> None:
        self._closed = self._closed or reason
        await self._guarded(self._call.done_writing())

    def close(self, reason: str) -> None:
        self._closed = self._closed or reason
        self._call.cancel()

    async def _guarded(self, operation: Any) -> Any:
        try:
            return await operation
        except asyncio.CancelledError:
            task = asyncio.current_task()
            if task is not None and task.cancelling():
                raise  # it is we who are cancelled, not the call
            raise StreamBroken(self._closed or "cancelled") from None
        except _BREAKS as error:
            raise StreamBroken(self._closed or _told(error)) from None

    async def _status(self) -> str:
        code, details = await self._call.code(), await self._call.details()
        return f"ended by the other side: {code.name} {details}".rstrip()


class ServerStream:
    """The accepting end: the context of a running handler. The handler waits for `closed`."""

    def __init__(self, context: Any) -> None:
        self._context = context
        self.closed: asyncio.Future[str] = asyncio.get_running_loop().create_future()

    @property
    def remote(self) -> str:
        return str(self._context.peer())

    async def read(self) -> bytes:
        data = await self._guarded(self._context.read())
        if data is grpc.aio.EOF:
            raise StreamBroken("ended by the other side")
        return data  # type: ignore[no-any-return]

    async def write(self, data: bytes) -> None:
        await self._guarded(self._context.write(data))

    async def finish(self, reason: str) -> None:
        self.close(reason)  # the handler ends with a status, which travels behind what was written

    def close(self, reason: str) -> None:
        if not self.closed.done():
            self.closed.set_result(reason)

    async def _guarded(self, operation: Any) -> Any:
        try:
            return await operation
        except _BREAKS as error:
            raise StreamBroken(_told(error)) from None


def _told(error: BaseException) -> str:
    if isinstance(error, grpc.aio.AioRpcError):
        return f"{error.code().name} {error.details()}"
    return f"{type(error).__name__} {error}".strip()
