"""What comes in over a role's links, for whoever puts faults on links and must see them act on the training itself."""

from __future__ import annotations

import time
from dataclasses import dataclass, field

from services.wire import control_pb2 as pb


@dataclass(slots=True)
class _Seen:
    frames: int = 0
    size_bytes: int = 0
    begun: int = 0
    delays_ms: list[float] = field(default_factory=list)


def monotonic_us() -> int:
    """The clock that stamps heartbeats: one for all processes and containers of a machine."""
    return time.monotonic_ns() // 1000


class LinkMeter:
    """Counts per peer since the last `take`."""

    def __init__(self) -> None:
        self._since_us = monotonic_us()
        self._seen: dict[str, _Seen] = {}

    def begun(self, peer: str) -> None:
        """A connection with the peer is up."""
        self._of(peer).begun += 1

    def came(self, peer: str, size_bytes: int) -> None:
        """A frame came in."""
        seen = self._of(peer)
        seen.frames += 1
        seen.size_bytes += size_bytes

    def stamped(self, peer: str, sent_us: int) -> None:
        """A heartbeat that was sent at that time has just come in."""
        self._of(peer).delays_ms.append((monotonic_us() - sent_us) / 1000.0)

    def take(self) -> pb.ControlRequest:
        """What was seen since the last time, for the driver."""
        now_us = monotonic_us()
        links = [
            pb.LinkSeen(
                peer=peer,
                frames=seen.frames,
                size_bytes=seen.size_bytes,
                begun=seen.begun,
                delays_ms=seen.delays_ms,
            )
            for peer, seen in sorted(self._seen.items())
        ]
        window_us, self._since_us, self._seen = now_us - self._since_us, now_us, {}
        return pb.ControlRequest(links_seen=pb.LinksSeen(window_us=window_us, links=links))

    def _of(self, peer: str) -> _Seen:
        return self._seen.setdefault(peer, _Seen())
