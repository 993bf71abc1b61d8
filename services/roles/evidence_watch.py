"""Watches that the reduced value of every committed step arrives, and asks for it when it does not.

The lowest contributor records the value on its own. When it died before that, the next live one in ascending order is
asked, then the next, round and round, a bounded number of times. What is stored the others may let go of.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from services.history import HistoryLine
from services.messages import EvidenceStored, WantEvidence

ROUNDS_MAX = 4
KEPT_BYTES = 16 << 20  # values that contributors may keep before they are told that these are stored
KEPT_STEPS = 32

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
    """Fed the lines that are durable. Messages come as (worker, message)."""

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

    def take(self, now_ms: float, line: HistoryLine) -> None:
        if line.kind == "Reduced" and line.arrays:
            body = json.loads(line.body_json)
            self._have.setdefault(body["step"], set()).add((body["attempt"], body["digest"]))
            self._value_bytes = max(1, sum(array.nbytes for array in line.arrays.values()))
            self._arrived(body["step"])
        elif line.kind == "Committed":
            self._committed(now_ms, json.loads(line.body_json))
        elif line.kind == "Died":
            body = json.loads(line.body_json)
            self._dead.add((body["worker"], body["incarnation"]))
        elif line.kind == "RolledBack":
            self._rolled_back(json.loads(line.body_json)["to_step"])

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

    def _committed(self, now_ms: float, body: dict[str, object]) -> None:
        step, attempt, digest = body["step"], body["attempt"], body["reduced_digest"]
        assert isinstance(step, int)
        assert isinstance(attempt, int)
        assert isinstance(digest, str)
        if step <= self._head:
            return  # told again by a relaunched coordinator
        self._head = step
        rows = body["contributors"]
        assert isinstance(rows, Iterable)
        contributors = tuple((row[0], row[1]) for row in rows)
        self._contributors = tuple(worker for worker, _ in contributors)
        if digest:  # a skip that was decided before anything was summed has none
            self._wanted[step] = _Wanted(attempt, digest, contributors, now_ms + self._wait_ms)
            self._arrived(step)

    def _arrived(self, step: int) -> None:
        wanted = self._wanted.get(step)
        if wanted is not None and (wanted.attempt, wanted.digest) in self._have.get(step, ()):
            del self._wanted[step]

    def _rolled_back(self, to_step: int) -> None:
        self._head, self._told = min(self._head, to_step), min(self._told, to_step)
        for table in (self._wanted, self._have):
            for step in [step for step in table if step > to_step]:
                del table[step]
