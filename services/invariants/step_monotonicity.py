"""Step monotonicity: one commit for each step, one step for each commit, in one lineage of rising generations."""

from __future__ import annotations

from collections.abc import Callable

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import (
    Closed,
    Committed,
    Finished,
    Opened,
    Recovered,
    Regrouped,
    RolledBack,
    RunStarted,
    StateApplied,
    StepApplied,
)


class StepMonotonicity(Invariant):
    name = "step monotonicity"
    holds_when = "the step advances by exactly one per commit, in one lineage of generations"
    watches = (
        RunStarted, Opened, Closed, Committed, StepApplied, RolledBack, Recovered, Regrouped, Finished, StateApplied,
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._start = 0
        self._head = 0
        self._generation = 0
        self._attempt = -1  # newest attempt that was closed of the step under way
        self._applied: dict[tuple[str, int, int], int] = {}  # (source, launch, incarnation) -> last step
        self._handlers: dict[type, Callable[[Entry], None]] = {
            RunStarted: self._on_started,
            Opened: self._on_opened,
            Closed: self._on_closed,
            Committed: self._on_committed,
            StepApplied: self._on_step_applied,
            RolledBack: self._on_rolled_back,
            Recovered: self._on_recovered,
            Regrouped: self._on_regrouped,
            Finished: self._on_finished,
            StateApplied: self._on_state_applied,
        }

    def on_fact(self, entry: Entry) -> None:
        self.checks += 1
        self._handlers[type(entry.fact)](entry)

    def _wrong(self, step: int, what: str, entry: Entry) -> None:
        self.violated(step, COORDINATOR, what, entry.seq)

    def _on_started(self, entry: Entry) -> None:
        assert isinstance(entry.fact, RunStarted)
        self._start = self._head = entry.fact.step

    def _on_opened(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Opened)
        if fact.step != self._head + 1:
            self._wrong(fact.step, f"step {fact.step} was opened after step {self._head}", entry)

    def _on_closed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Closed)
        if fact.step != self._head + 1:
            self._wrong(fact.step, f"step {fact.step} was closed after step {self._head}", entry)
        elif fact.attempt <= self._attempt:
            self._wrong(fact.step, f"attempt {fact.attempt} was closed after attempt {self._attempt}", entry)
        self._attempt = max(self._attempt, fact.attempt)

    def _on_committed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Committed)
        if fact.step != self._head + 1:
            self._wrong(fact.step, f"step {fact.step} was committed after step {self._head}", entry)
        if fact.generation < self._generation:
            what = f"step {fact.step} was committed in generation {fact.generation}, after {self._generation}"
            self._wrong(fact.step, what, entry)
        self._head = max(self._head, fact.step)
        self._attempt = -1

    def _on_step_applied(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, StepApplied)
        if fact.step != self._head:
            self._wrong(fact.step, f"all have applied step {fact.step}, committed is step {self._head}", entry)

    def _on_rolled_back(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, RolledBack)
        if not self._start <= fact.to_step <= self._head:
            self._wrong(fact.to_step, f"rolled back to step {fact.to_step} from step {self._head}", entry)
        self._head = fact.to_step
        self._attempt = -1

    def _on_recovered(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Recovered)
        if fact.step not in (self._head, self._head - 1):
            self._wrong(fact.step, f"the coordinator came back at step {fact.step}, committed is {self._head}", entry)

    def _on_regrouped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Regrouped)
        if fact.generation <= self._generation:
            what = f"generation {fact.generation} follows generation {self._generation}"
            self._wrong(fact.step, what, entry)
        self._generation = max(self._generation, fact.generation)

    def _on_finished(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Finished)
        if fact.condition == "finished" and fact.step != self._head:
            self._wrong(fact.step, f"finished at step {fact.step}, committed is step {self._head}", entry)

    def _on_state_applied(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, StateApplied)
        key = (entry.source, entry.launch, fact.incarnation)
        last = self._applied.get(key)
        if last is not None and not fact.adopted and fact.step != last + 1:
            what = f"applied step {fact.step} after step {last}"
            self.violated(fact.step, worker_role(fact.worker), what, entry.seq)
        self._applied[key] = fact.step
