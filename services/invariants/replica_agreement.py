"""Replica agreement: after each commit every live member holds the same bits, and the coordinator heard of them all."""

from __future__ import annotations

from services.invariants.base import Invariant
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import Proven, StepApplied
from services.state_reports import StateReport


class ReplicaAgreement(Invariant):
    name = "replica agreement"
    holds_when = "every live member's parameters and optimizer state are bitwise identical after each commit"
    watches = (StepApplied, Proven)

    def on_fact(self, entry: Entry) -> None:
        fact = entry.fact
        if not isinstance(fact, StepApplied):
            return
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
