"""What a link carries besides messages. `Frame` in proto/gradstorm/v1/messages.proto is the same on the wire."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Hello:
    """First frame in each direction: who speaks, and whom it takes the other side for (`target`)."""

    role: str
    launch: int
    incarnation: int
    target: str


@dataclass(frozen=True, slots=True)
class Identify:
    """From here on the sender's frames are of this incarnation."""

    incarnation: int


@dataclass(frozen=True, slots=True)
class Heartbeat:
    """The sender's process lives, whatever its role is doing.

    `sent_us` is the sender's monotonic clock where links are measured (all on one machine, so on one clock), else 0.
    """

    sent_us: int = 0


@dataclass(frozen=True, slots=True)
class Fragment:
    """Bytes `start` … of the encoding of a frame of `total` bytes that is larger than one gRPC message may be."""

    total: int
    start: int
    data: bytes = field(repr=False)


TransportFrame = Hello | Identify | Heartbeat | Fragment
