"""Whom the coordinator knows: workers on their way in, members, the server; their links and leases."""

from __future__ import annotations

from dataclasses import dataclass

from services.messages import Member

ADMITTED = "admitted"  # has an incarnation; loading the data
LOADED = "loaded"  # holds the data; waits for the boundary at which it may join
SYNCING = "syncing"  # told which state to adopt and prove
PROVED = "proved"  # its state is proved; member as soon as the next generation is durable
MEMBER = "member"


@dataclass(slots=True)
class Peer:
    """One worker process under one incarnation."""

    worker: int
    incarnation: int
    launch: int
    address: str
    state: str
    heard_ms: float
    linked: bool = True
    kind: str = "worker"
    demoted: bool = False  # was a member until the state that it held was given up

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.worker}"


class PeerTable:
    """At most one peer for each worker id. `kind` is what their names begin with."""

    def __init__(self, kind: str = "worker") -> None:
        self.kind = kind
        self._peers: dict[int, Peer] = {}

    def name_of(self, worker: int) -> str:
        return f"{self.kind}-{worker}"

    def put(self, peer: Peer) -> None:
        self._peers[peer.worker] = peer

    def drop(self, worker: int) -> None:
        self._peers.pop(worker, None)

    def get(self, worker: int) -> Peer | None:
        return self._peers.get(worker)

    def find(self, name: str, incarnation: int) -> Peer | None:
        """The peer behind a link, or None when that incarnation is not (or no longer) known."""
        kind, _, number = name.partition("-")
        peer = self._peers.get(int(number)) if kind == self.kind and number.isdigit() else None
        return peer if peer is not None and peer.incarnation == incarnation else None

    def all(self) -> list[Peer]:
        return [self._peers[worker] for worker in sorted(self._peers)]

    def in_state(self, *states: str) -> list[Peer]:
        return [peer for peer in self.all() if peer.state in states]

    def members(self) -> list[Peer]:
        """Ascending by worker id."""
        return self.in_state(MEMBER)

    def member(self, worker: int) -> Peer | None:
        peer = self._peers.get(worker)
        return peer if peer is not None and peer.state == MEMBER else None

    def as_members(self) -> tuple[Member, ...]:
        return tuple(Member(peer.worker, peer.incarnation, peer.address) for peer in self.members())
