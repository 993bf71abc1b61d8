"""Fencing: nothing of an old generation or incarnation has an effect.

Whatever the coordinator opens, closes, commits, counts as applied or publishes must bear the generation that is current
in its own numbering, and rest on members of that generation alone. A scenario that promises refused stale messages
(`Expectation.promises["refused_stale"]`) is answered "unknown" until so many have been refused.
"""

from __future__ import annotations

from collections.abc import Iterable

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import (
    Admitted,
    Closed,
    Committed,
    Died,
    Expectation,
    Opened,
    Proven,
    Published,
    Refused,
    Regrouped,
    StateApplied,
    StepApplied,
)

STALE = ("old generation", "old incarnation", "not a member")


class Fencing(Invariant):
    name = "fencing"
    holds_when = "nothing of an old generation or incarnation has an effect"
    watches = (
        Admitted, Died, Regrouped, Proven, Opened, Closed, Committed, StepApplied, Published, StateApplied, Refused,
        Expectation,
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.refused_stale = 0
        self._promised = 0
        self._newest: dict[int, int] = {}  # worker -> incarnation
        self._ended: set[tuple[int, int]] = set()  # (worker, incarnation) held for dead
        self._highest = 0
        self._early: dict[int, list[Entry]] = {}  # generation not known yet -> what members told of it
        self.handlers = {
            Admitted: self._on_admitted,
            Died: self._on_died,
            Regrouped: self._on_regrouped,
            Proven: self._on_proven,
            Opened: self._on_opened,
            Closed: self._on_closed,
            Committed: self._on_committed,
            StepApplied: self._on_step_applied,
            Published: self._on_published,
            StateApplied: self._on_state_applied,
            Refused: self._on_refused,
            Expectation: self._on_expectation,
        }

    def finish(self) -> None:
        for generation, entries in sorted(self._early.items()):
            self.cannot_say(f"{entries[0].source} applied a step under generation {generation}, which nobody began")
        if self.refused_stale < self._promised:
            self.cannot_say(f"{self._promised} refused stale messages were promised, {self.refused_stale} were refused")

    # ------------------------------------------------------------ membership

    def _on_admitted(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Admitted)
        self.checks += 1
        if fact.incarnation <= self._highest:
            self.violated(0, COORDINATOR, f"incarnation {fact.incarnation} was given out twice", entry.seq)
        self._highest = max(self._highest, fact.incarnation)
        self._newest[fact.worker] = fact.incarnation

    def _on_died(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Died)
        self._ended.add((entry.fact.worker, entry.fact.incarnation))

    def _on_regrouped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Regrouped)
        self.checks += 1
        for member in fact.members:
            if member in self._ended or self._newest.get(member[0], member[1]) != member[1]:
                what = f"incarnation {member[1]}, which is over, is a member of generation {fact.generation}"
                self.violated(fact.step + 1, worker_role(member[0]), what, entry.seq)
        for early in self._early.pop(fact.generation, ()):
            self._on_state_applied(early)

    def _on_proven(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Proven)
        self.checks += 1
        member = (fact.worker, fact.incarnation)
        if member in self._ended or self._newest.get(fact.worker, fact.incarnation) != fact.incarnation:
            what = f"incarnation {fact.incarnation}, which is over, was taken for proved"
            self.violated(fact.step, worker_role(fact.worker), what, entry.seq)

    # ------------------------------------------------------------ effects

    def _on_opened(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Opened)
        self._require_current(fact.step, fact.generation, "opened", entry)

    def _on_closed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Closed)
        self._require_current(fact.step, fact.generation, "closed", entry)
        members = [(worker, incarnation) for worker, incarnation, _ in fact.contributors]
        self._require_members(fact.step, fact.generation, members, "contributes", entry)

    def _on_committed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Committed)
        self._require_current(fact.step, fact.generation, "committed", entry)
        members = [(worker, incarnation) for worker, incarnation, _ in fact.contributors]
        self._require_members(fact.step, fact.generation, members, "is counted", entry)

    def _on_step_applied(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, StepApplied)
        self._require_current(fact.step, fact.generation, "applied by all", entry)
        members = [(worker, incarnation) for worker, incarnation, _, _ in fact.applied]
        self._require_members(fact.step, fact.generation, members, "counts as having applied", entry)

    def _on_published(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Published)
        if fact.writer:  # 0: the coordinator's own
            member = [(fact.writer, fact.incarnation)]
            self._require_members(fact.step, self.ledger.generation, member, f"has its {fact.name} published", entry)

    def _on_state_applied(self, entry: Entry) -> None:
        """A member's own word: under a generation that it does not belong to, it may only adopt a state."""
        fact = entry.fact
        assert isinstance(fact, StateApplied)
        if fact.adopted:
            return
        known = self.ledger.members.get(fact.generation)
        if known is not None and known.get(fact.worker) == fact.incarnation:
            self.checks += 1  # the usual case
            return
        if fact.generation > self.ledger.generation:
            self._early.setdefault(fact.generation, []).append(entry)
            return
        self._require_members(fact.step, fact.generation, [(fact.worker, fact.incarnation)], "applied", entry)

    def _require_current(self, step: int, generation: int, what: str, entry: Entry) -> None:
        self.checks += 1
        if generation != self.ledger.generation:
            told = f"step {step} was {what} in generation {generation}, current is {self.ledger.generation}"
            self.violated(step, COORDINATOR, told, entry.seq)

    def _require_members(
        self, step: int, generation: int, members: Iterable[tuple[int, int]], what: str, entry: Entry
    ) -> None:
        known = self.ledger.members.get(generation)
        if known is None:
            self.violated(step, COORDINATOR, f"generation {generation} was never begun", entry.seq)
            return
        for worker, incarnation in members:
            self.checks += 1
            if known.get(worker) != incarnation:
                told = f"incarnation {incarnation} {what} in step {step}; it is no member of generation {generation}"
                self.violated(step, worker_role(worker), told, entry.seq)

    # ------------------------------------------------------------ refusals

    def _on_refused(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Refused)
        if entry.fact.reason in STALE:
            self.checks += 1
            self.refused_stale += 1

    def _on_expectation(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Expectation)
        promised = entry.fact.promises.get("refused_stale", 0)
        self._promised = int(promised)
