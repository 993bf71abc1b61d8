"""One live stream with one peer: a bounded outbox, one serialised writer, heartbeats, reassembly of large frames.

Sending never waits: `send` puts into the outbox, and an outbox that grows beyond its bound breaks the link, so that a
peer which does not read can never keep us from reading. Heartbeats overtake what waits in the outbox.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Sequence
from dataclasses import replace
from typing import Protocol

from services.codec import decode, encode
from services.frames import Fragment, Heartbeat, Hello, Identify, TransportFrame
from services.messages import Boundary, DataPart, Message, Part, Report
from services.shell.link_meter import LinkMeter, monotonic_us
from services.shell.options import TransportOptions
from services.shell.stream import Stream, StreamBroken
from services.wire_error import WireError

_HEADER_BYTES = 256  # rough size of a message without a payload
_FRAGMENT_ROOM_BYTES = 64


class LinkOwner(Protocol):
    """Who hears what a link receives. All calls come from the loop."""

    def received(self, link: Link, message: Message) -> None: ...

    def heard(self, link: Link) -> None: ...

    def identified(self, link: Link) -> None: ...


class Outgoing:
    """A message on its way to one peer or several: encoded once, by the first link that writes it."""

    __slots__ = ("_data", "message", "size_bytes")

    def __init__(self, message: Message | TransportFrame) -> None:
        self.message = message
        self.size_bytes = rough_bytes(message)
        self._data: bytes | None = None

    def encoded(self) -> bytes:
        """The bytes of its frame; a boundary's say when that was, and it goes to one peer alone."""
        if self._data is None:
            message = self.message
            self._data = encode(replace(message, sent_us=monotonic_us()) if isinstance(message, Boundary) else message)
        return self._data


class Link:
    """A handshaken stream. `peer`, `launch` and `incarnation` are what the other side claims."""

    def __init__(
        self, stream: Stream, hello: Hello, dialled: bool, owner: LinkOwner, options: TransportOptions
    ) -> None:
        self.peer = hello.role
        self.launch = hello.launch
        self.incarnation = hello.incarnation
        self.dialled = dialled
        self.broken_because = ""
        self.meter: LinkMeter | None = None
        self._stream = stream
        self._owner = owner
        self._options = options
        self._outbox: deque[Outgoing] = deque()
        self._outbox_bytes = 0
        self._heartbeat_due = False
        self._closing = False
        self._wake = asyncio.Event()
        self._pieces: list[bytes] = []
        self._pieces_bytes = 0
        self._pieces_total = 0

    def send(self, message: Message | TransportFrame | Outgoing) -> None:
        """Put into the outbox; lost when the link breaks first."""
        if self._closing:
            return
        outgoing = message if isinstance(message, Outgoing) else Outgoing(message)
        if outgoing.size_bytes > self._options.message_bytes_max:
            kind, most = type(outgoing.message).__name__, self._options.message_bytes_max
            self.close(f"a {kind} of {outgoing.size_bytes} bytes for {self.peer}; {most} may be sent")
            return
        self._outbox.append(outgoing)
        self._outbox_bytes += outgoing.size_bytes
        self._wake.set()
        if self._outbox_bytes > self._options.outbox_bytes_max:
            self.close(f"{self.peer} does not read: {self._outbox_bytes} bytes wait for it")

    def finish(self, reason: str) -> None:
        """Deliver nothing more from the peer, send what waits (for `drain_ms` at most), then close."""
        if not self._closing:
            self._closing = True
            self.broken_because = reason
            self._wake.set()
            asyncio.get_running_loop().call_later(self._options.drain_ms / 1000.0, self._stream.close, reason)

    def close(self, reason: str) -> None:
        """Break the link now."""
        self._closing = True
        self.broken_because = self.broken_because or reason
        self._outbox.clear()
        self._stream.close(reason)

    async def run(self) -> str:
        """Carry the link until it breaks; returns why."""
        loop = asyncio.get_running_loop()
        beat = loop.call_later(0, self._beat)
        self._beat_handle = beat
        reader, writer = loop.create_task(self._read_all()), loop.create_task(self._write_all())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            if writer.done() and writer.exception() is None:
                await asyncio.wait((reader,))  # we have finished, the other side has not yet
        finally:
            self._closing = True
            self._beat_handle.cancel()
            reader.cancel()
            writer.cancel()
            ends = await asyncio.gather(reader, writer, return_exceptions=True)
        return self._why(ends)

    # ------------------------------------------------------------ inside

    def _why(self, ends: Sequence[BaseException | None]) -> str:
        for end in ends:
            if isinstance(end, StreamBroken | WireError):
                self.broken_because = self.broken_because or str(end)
            elif isinstance(end, Exception):
                raise end
        return self.broken_because

    def _beat(self) -> None:
        self._heartbeat_due = True
        self._wake.set()
        self._beat_handle = asyncio.get_running_loop().call_later(self._options.heartbeat_ms / 1000.0, self._beat)

    async def _write_all(self) -> None:
        while True:
            while self._heartbeat_due or self._outbox:
                await self._write_one()
            if self._closing:
                await self._stream.finish(self.broken_because)
                return
            self._wake.clear()
            await self._wake.wait()

    async def _write_one(self) -> None:
        if self._heartbeat_due:
            self._heartbeat_due = False
            await self._stream.write(self._heartbeat())
            return
        outgoing = self._outbox.popleft()
        self._outbox_bytes -= outgoing.size_bytes
        data = outgoing.encoded()
        if len(data) <= self._options.frame_bytes_max:
            await self._stream.write(data)
        else:
            await self._write_fragments(data)

    def _heartbeat(self) -> bytes:
        return encode(Heartbeat(monotonic_us())) if self._options.measured else _HEARTBEAT

    async def _write_fragments(self, data: bytes) -> None:
        step = self._options.frame_bytes_max - _FRAGMENT_ROOM_BYTES
        for start in range(0, len(data), step):
            if self._heartbeat_due:
                self._heartbeat_due = False
                await self._stream.write(self._heartbeat())
            await self._stream.write(encode(Fragment(len(data), start, data[start : start + step])))

    async def _read_all(self) -> None:
        while True:
            data = await self._stream.read()
            if self.meter is not None:
                self.meter.came(self.peer, len(data))
            if data == _HEARTBEAT:
                if not self._closing:
                    self._owner.heard(self)
                continue
            frame = decode(data, self.peer)
            if isinstance(frame, Fragment):
                whole = self._reassembled(frame)
                if whole is None:
                    continue
                frame = decode(whole, self.peer)
            elif self._pieces:
                raise WireError("a frame in the middle of another one", self.peer)
            if not self._closing:
                self._deliver(frame)

    def _deliver(self, frame: Message | TransportFrame) -> None:
        if isinstance(frame, Identify):
            self.incarnation = frame.incarnation
            self._owner.identified(self)
        elif isinstance(frame, Heartbeat):
            if self.meter is not None:
                self.meter.stamped(self.peer, frame.sent_us)
            self._owner.heard(self)
        elif isinstance(frame, Hello | Fragment):
            raise WireError(f"{type(frame).__name__} where it cannot be", self.peer)
        else:
            self._owner.received(self, frame)

    def _reassembled(self, piece: Fragment) -> bytes | None:
        if not self._pieces:
            self._pieces_total = piece.total
        if not 0 < piece.total <= self._options.message_bytes_max:
            raise WireError(
                f"a message of {piece.total} bytes; {self._options.message_bytes_max} are allowed", self.peer
            )
        end = piece.start + len(piece.data)
        if (
            piece.total != self._pieces_total
            or piece.start != self._pieces_bytes
            or end > piece.total
            or not piece.data
        ):
            raise WireError(f"piece {piece.start}..{end} of {piece.total} does not follow", self.peer)
        self._pieces.append(piece.data)
        self._pieces_bytes = end
        if end < piece.total:
            return None
        whole = b"".join(self._pieces)
        self._pieces, self._pieces_bytes = [], 0
        return whole


_HEARTBEAT = encode(Heartbeat())


def rough_bytes(message: Message | TransportFrame) -> int:
    """About how much memory the message keeps alive."""
    if isinstance(message, Part):
        return message.data.nbytes + _HEADER_BYTES
    if isinstance(message, DataPart):
        return len(message.data) + _HEADER_BYTES
    if isinstance(message, Boundary):
        return len(message.payload) + _HEADER_BYTES
    if isinstance(message, Report):
        return sum(
            len(record.body_json) + sum(array.nbytes for _, array in record.arrays) + _HEADER_BYTES
            for record in message.records
        )
    return _HEADER_BYTES
