"""Watches that the reduced value of every committed step arrives, and asks for it when it does not.

The lowest contributor records the value on its own. When it died before that, the next live one in ascending order is
asked, then the next, round and round, a bounded number of times. What is stored the others may let go of.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from services.history import HistoryLine
from services.messages import EvidenceStored, WantEvidence
from services.records import Committed, Died, Fact, Reduced, RolledBack

ROUNDS_MAX = 4
KEPT_BYTES = 16 << 20  # values that contributors may keep before they are told that these are stored
KEPT_STEPS = 32
WATCHED = ("Reduced", "Committed", "Died", "RolledBack")

Value = tuple[int, int, str]  # step, attempt, digest


@dataclass(slots=True)
class _Wanted:
    """A committed step whose value is not here yet."""

    attempt: int
    digest: str
    contributors: tuple[tuple[int, int], ...]  # worker, incarnation, ascending
    due_ms: float
    asked: int = 0


class EvidenceWatch:
    """Fed the lines that are durable, with what `told_fact` finds in them. Messages come as (worker, message)."""

    def __init__(self, wait_ms: float) -> None:
        self.given_up: list[int] = []
        self._wait_ms = wait_ms
        self._wanted: dict[int, _Wanted] = {}
        self._have: dict[int, set[tuple[int, str]]] = {}
        self._dead: set[tuple[int, int]] = set()
        self._head = 0
        self._told = 0  # last step that contributors were told is stored
        self._contributors: tuple[int, ...] = ()
        self._value_bytes = 1

    def take(self, now_ms: float, line: HistoryLine, fact: Fact | None) -> None:
        match fact:
            case Reduced() as reduced if line.arrays:
                self._have.setdefault(reduced.step, set()).add((reduced.attempt, reduced.digest))
                self._value_bytes = max(1, sum(array.nbytes for array in line.arrays.values()))
                self._arrived(reduced.step)
            case Committed() as committed:
                self._committed(now_ms, committed)
            case Died() as died:
                self._dead.add((died.worker, died.incarnation))
            case RolledBack() as back:
                self._rolled_back(back.to_step)
            case _:
                pass

    @property
    def due_ms(self) -> float | None:
        """When to call `ask` next, or None when nothing is missing."""
        return min((wanted.due_ms for wanted in self._wanted.values()), default=None)

    @property
    def missing(self) -> list[int]:
        return sorted(self._wanted)

    def ask(self, now_ms: float) -> Iterator[tuple[int, WantEvidence]]:
        """Whom to ask for what is overdue."""
        for step in sorted(self._wanted):
            wanted = self._wanted[step]
            if wanted.due_ms > now_ms:
                continue
            live = [worker for worker, incarnation in wanted.contributors if (worker, incarnation) not in self._dead]
            wanted.asked += 1
            wanted.due_ms = now_ms + self._wait_ms
            if not live or wanted.asked > ROUNDS_MAX * len(live):
                self.given_up.append(step)
                del self._wanted[step]
                continue
            yield live[wanted.asked % len(live)], WantEvidence(step, wanted.attempt)

    def release(self) -> Iterator[tuple[int, EvidenceStored]]:
        """Whom to tell what is stored; not after every step, but before much is kept."""
        through = min(self._wanted, default=self._head + 1) - 1
        enough = min(KEPT_STEPS, 1 + KEPT_BYTES // self._value_bytes)
        if through - self._told < enough:
            return
        self._told = through
        for step in [step for step in self._have if step <= through]:
            if step < through - KEPT_STEPS:
                del self._have[step]
        yield from ((worker, EvidenceStored(through)) for worker in self._contributors)

    # ------------------------------------------------------------ inside

    def _committed(self, now_ms: float, fact: Committed) -> None:
        if fact.step <= self._head:
            return  # told again by a relaunched coordinator
        self._head = fact.step
        contributors = tuple((worker, incarnation) for worker, incarnation, _ in fact.contributors)
        self._contributors = tuple(worker for worker, _ in contributors)
        if fact.reduced_digest:  # a skip that was decided before anything was summed has none
            self._wanted[fact.step] = _Wanted(fact.attempt, fact.reduced_digest, contributors, now_ms + self._wait_ms)
            self._arrived(fact.step)

    def _arrived(self, step: int) -> None:
        wanted = self._wanted.get(step)
        if wanted is not None and (wanted.attempt, wanted.digest) in self._have.get(step, ()):
            del self._wanted[step]

    def _rolled_back(self, to_step: int) -> None:
        self._head, self._told = min(self._head, to_step), min(self._told, to_step)
        for table in (self._wanted, self._have):
            for step in [step for step in table if step > to_step]:
                del table[step]
