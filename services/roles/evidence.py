"""Reduced values that a contributor keeps until the verifier has stored somebody's."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Collection

from services.records import Reduced

KEPT_BYTES_MAX = 256 << 20
KEPT_STEPS_MAX = 256


class EvidenceShelf:
    """Bounded: beyond its caps the oldest value is let go, and its step may become unjudgeable, never silently."""

    def __init__(self) -> None:
        self._kept: OrderedDict[tuple[int, int], Reduced] = OrderedDict()
        self._bytes = 0

    def keep(self, fact: Reduced) -> None:
        before = self._kept.pop((fact.step, fact.attempt), None)  # of a step that was rolled back
        self._bytes -= 0 if before is None else _size(before)
        self._kept[fact.step, fact.attempt] = fact
        self._bytes += _size(fact)
        while len(self._kept) > KEPT_STEPS_MAX or (self._bytes > KEPT_BYTES_MAX and len(self._kept) > 1):
            self._bytes -= _size(self._kept.popitem(last=False)[1])

    def find(self, step: int, attempt: int) -> Reduced | None:
        return self._kept.get((step, attempt))

    def take_orphans(self, members: Collection[int], worker: int) -> list[Reduced]:
        """Values whose lowest contributor is no member any more, if `worker` is the lowest now; kept no longer."""
        orphans = [
            fact for fact in self._kept.values()
            if fact.order[0] not in members and worker == min(other for other in fact.order if other in members)
        ]  # fmt: skip
        for fact in orphans:
            self._bytes -= _size(self._kept.pop((fact.step, fact.attempt)))
        return orphans

    def drop(self, through_step: int) -> None:
        """Let go of every step up to this one."""
        while self._kept and next(iter(self._kept))[0] <= through_step:
            self._bytes -= _size(self._kept.popitem(last=False)[1])


def _size(fact: Reduced) -> int:
    return 0 if fact.value is None else int(fact.value.nbytes)
