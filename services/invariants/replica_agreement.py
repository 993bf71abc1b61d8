"""Replica agreement: after each commit every live member holds the same bits, and the coordinator heard of them all.

It hears of them before it goes on: no step opens and no run finishes before the last commit is told as applied by all.
"""

from __future__ import annotations

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import Committed, Finished, Opened, Proven, Recovered, RolledBack, StepApplied
from services.state_reports import StateReport


class ReplicaAgreement(Invariant):
    name = "replica agreement"
    holds_when = "every live member's parameters and optimizer state are bitwise identical after each commit"
    watches = (StepApplied, Proven, Committed, Opened, Finished, Recovered, RolledBack)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._launch = 1  # of the coordinator, that decides by now; a later one first reads its log out
        self._due = 0  # committed, and not told as applied by all so far; 0: nothing is

    def on_fact(self, entry: Entry) -> None:
        match entry.fact:
            case StepApplied() as applied:
                self._due = 0
                self._applied(entry, applied)
            case Committed(step=step) if entry.launch == self._launch:
                self._due = step
            case Recovered():
                self._launch, self._due = entry.launch, 0  # what the launch before it heard may be lost with it
            case RolledBack():
                self._due = 0
            case Opened() | Finished(condition="finished") if self._due and entry.launch == self._launch:
                what = f"the run went on from step {self._due} before all were told to have applied it"
                self.violated(self._due, COORDINATOR, what, entry.seq)
                self._due = 0
            case _:
                pass

    def _applied(self, entry: Entry, fact: StepApplied) -> None:
        self.checks += 1
        first = fact.applied[0] if fact.applied else None
        for worker, _, parameters, velocity in fact.applied:
            assert first is not None
            if (parameters, velocity) != first[2:]:
                what = f"told a state after step {fact.step} that is not that of {worker_role(first[0])}"
                self.violated(fact.step, worker_role(worker), what, entry.seq)
        members = self.ledger.members.get(fact.generation, {})
        told = {worker: incarnation for worker, incarnation, _, _ in fact.applied}
        missing = sorted(worker for worker, incarnation in members.items() if told.get(worker) != incarnation)
        if missing:
            what = f"step {fact.step} counts as applied by all, without {', '.join(map(worker_role, missing))}"
            self.violated(fact.step, COORDINATOR, what, entry.seq)

    def on_deviation(self, report: StateReport, what: str) -> None:
        self.violated(report.step, report.role, f"{what} after step {report.step}", report.seq)
