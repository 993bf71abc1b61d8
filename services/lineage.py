"""What the ledger puts together: entries, steps with their evidence, and lineages of steps."""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass, field

from services.messages import Array
from services.records import Closed, Committed, Contributed, Fact, Opened, Reduced
from services.replay import ReplayedState

COORDINATOR = "coordinator"  # also in services.events, which a judge must not import: it leads to training


def worker_role(worker: int) -> str:
    return f"worker-{worker}"


def shard_role(shard: int) -> str:
    return f"shard-{shard}"


@dataclass(slots=True, eq=False)
class Entry:
    """One fact with its place in the history. Nobody changes it; to freeze it costs more than to make it."""

    seq: int
    at_ms: float
    source: str
    launch: int
    number: int
    fact: Fact


@dataclass(slots=True, eq=False)
class Step:
    """The evidence of one committed step. `before` and `after` are there once it is replayed."""

    lineage: Lineage
    number: int
    entry: Entry
    committed: Committed
    opened: Opened | None
    closed: Closed | None
    before: ReplayedState | None = None
    after: ReplayedState | None = None
    reduced: Reduced | None = None
    contributions: dict[int, Contributed] = field(default_factory=dict)

    @property
    def missing(self) -> list[int]:
        """Contributors whose contribution has not been recorded."""
        return [worker for worker, _, _ in self.committed.contributors if worker not in self.contributions]

    @property
    def whole(self) -> bool:
        """Whether every contribution was recorded with its gradient."""
        return not self.missing and all(item.gradient is not None for item in self.contributions.values())

    @property
    def complete(self) -> bool:
        skipped_sum = self.committed.skip and self.committed.reduced_digest != "" and self.reduced is None
        return not self.missing and (not skipped_sum or self.whole)


@dataclass(slots=True, eq=False)
class Lineage:
    """A run of steps that no rollback interrupts. Facts of a generation above `above` belong to it or a later one."""

    index: int
    start: int
    above: int
    parent: Lineage | None
    head: int  # last committed step
    steps: dict[int, Step] = field(default_factory=dict)  # committed, not yet replayed
    replayed: int = -1  # last step whose state is known; -1 before the starting state is
    state: ReplayedState | None = None
    packed_digests: dict[int, bytes] = field(default_factory=dict)  # of the state after each replayed step
    snapshots: dict[int, ReplayedState] = field(default_factory=dict)  # at checkpoint steps, the newest few
    ids: dict[int, tuple[int, array[int]]] = field(default_factory=dict)  # step -> epoch, committed sample ids
    checked: set[int] = field(default_factory=set)  # steps whose gradient was judged
    confirmed: set[int] = field(default_factory=set)  # steps whose replayed state somebody holds

    def keep_digests(self, step: int, digests: tuple[str, str]) -> None:
        """SHA-256 in hex of parameters and velocity after `step`: kept for every step of a run, so in few bytes."""
        self.packed_digests[step] = bytes.fromhex(digests[0] + digests[1])

    def digests(self, step: int) -> tuple[str, str]:
        """Those of a replayed step. Raises KeyError for another one."""
        both = self.packed_digests[step].hex()
        return both[:64], both[64:]


def packed_ids(parts: Iterable[Iterable[int]]) -> array[int]:
    """Sample ids in the order of `parts`, in four bytes each where that does."""
    flat = [sample for part in parts for sample in part]
    try:
        return array("i", flat)
    except OverflowError:
        return array("q", flat)


def same_bits(first: Array, second: Array) -> bool:
    """Whether two float64 arrays have the same bits; -0.0 differs from 0.0, and a NaN may equal itself."""
    return first.size == second.size and first.tobytes() == second.tobytes()
