"""Who held which state after which step, compared with the replay as soon as that is known.

A report that equals the replay confirms the step. One that differs is a *deviation* when somebody else confirms the
step, and when nobody does, everybody agrees on (or quarrels about) a state that the recorded gradient does not lead to:
the step is *unheld*. Reports are told by members (`StateApplied`) and by the coordinator (`StepApplied`, `Proven`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from services.ledger import Ledger
from services.lineage import Entry, Lineage, Step, worker_role
from services.records import Proven, Regrouped, StateApplied, StepApplied

WATCHES = (StateApplied, StepApplied, Proven, Regrouped)
Digests = tuple[str, str]


@dataclass(frozen=True, slots=True)
class StateReport:
    """`role` holds (or so it is told) this state after `step`; parameters' and velocity's digests."""

    step: int
    generation: int
    role: str
    digests: Digests
    seq: int


Finding = Callable[[StateReport, str], None]


class StateReports:
    """`on_deviation` names a role that differs from the others; `on_unheld` a step whose replay nobody holds."""

    def __init__(self, ledger: Ledger, on_deviation: Finding, on_unheld: Finding) -> None:
        self.compared = 0
        self._ledger = ledger
        self._on_deviation = on_deviation
        self._on_unheld = on_unheld
        self._waiting: dict[int, list[StateReport]] = {}  # by step: not replayed yet, or of a generation to come
        self._odd: dict[tuple[int, int], list[StateReport]] = {}  # (lineage, step) -> reports unlike the replay
        self._settled: set[tuple[int, int]] = set()  # (lineage, step) that the coordinator told as applied by all
        self._told: dict[int, list[int]] = {}  # step -> generations of a StepApplied that waits

    def take(self, entry: Entry) -> None:
        match entry.fact:
            case StateApplied() as fact:
                digests = (fact.parameters_digest, fact.velocity_digest)
                self._hear(fact.step, fact.generation, fact.worker, digests, entry.seq)
            case StepApplied() as told:
                for worker, _, parameters, velocity in told.applied:
                    self._hear(told.step, told.generation, worker, (parameters, velocity), entry.seq)
                self._told.setdefault(told.step, []).append(told.generation)
                self._settle(told.step)
            case Proven() as proven:
                digests = (proven.parameters_digest, proven.velocity_digest)
                self._hear(proven.step, proven.generation, proven.worker, digests, entry.seq)
            case Regrouped():
                for step in list(self._waiting):
                    self._retry(step)
            case _:
                pass

    def on_replayed(self, step: Step) -> None:
        if step.number in self._waiting:
            self._retry(step.number)
        if step.number in self._told:
            self._settle(step.number)

    def finish(self) -> None:
        for step in sorted(self._waiting):
            self._retry(step, final=True)
            self._compare_among(self._waiting[step]) if step in self._waiting else None
        for key in sorted(self._odd):
            self._decide(key)

    # ------------------------------------------------------------ inside

    def _hear(self, step: int, generation: int, worker: int, digests: Digests, seq: int) -> None:
        lineage = self._lineage(step, generation, final=False)
        if lineage is not None and lineage.digests(step) == digests and (lineage.index, step) not in self._odd:
            self.compared += 1  # the usual case
            lineage.confirmed.add(step)
            return
        report = StateReport(step, generation, worker_role(worker), digests, seq)
        if not self._judge(report, final=False):
            self._waiting.setdefault(step, []).append(report)

    def _retry(self, step: int, final: bool = False) -> None:
        left = [report for report in self._waiting.pop(step) if not self._judge(report, final)]
        if left:
            self._waiting[step] = left

    def _lineage(self, step: int, generation: int, final: bool) -> Lineage | None:
        """Where the report belongs, if that state is replayed and no rollback can come between."""
        lineage = self._ledger.lineage_of(step, generation)
        if lineage is None or step > lineage.replayed or (generation > self._ledger.generation and not final):
            return None
        return lineage

    def _judge(self, report: StateReport, final: bool) -> bool:
        """Compare a report with the replay. False when that is not possible yet."""
        lineage = self._lineage(report.step, report.generation, final)
        if lineage is None:
            return False
        self.compared += 1
        key = (lineage.index, report.step)
        if lineage.digests(report.step) == report.digests:
            lineage.confirmed.add(report.step)
            if key in self._odd:
                self._decide(key)
        else:
            self._odd.setdefault(key, []).append(report)
            if key in self._settled or self._is_confirmed(key):
                self._decide(key)
        return True

    def _is_confirmed(self, key: tuple[int, int]) -> bool:
        return key[1] in self._ledger.lineages[key[0]].confirmed

    def _settle(self, step: int) -> None:
        """The coordinator told that all have applied: whoever differs now will not be confirmed by a member to come."""
        left = []
        for generation in self._told.pop(step, ()):
            lineage = self._lineage(step, generation, final=False)
            if lineage is None:
                left.append(generation)
            elif (lineage.index, step) in self._odd:
                self._settled.add((lineage.index, step))
                self._decide((lineage.index, step))
        if left:
            self._told[step] = left

    def _decide(self, key: tuple[int, int]) -> None:
        reports = self._odd.pop(key)
        if self._is_confirmed(key):
            for report in reports:
                self._on_deviation(report, "holds another state than the one that others hold and the replay gives")
            return
        reports.sort(key=lambda report: report.role)
        self._on_unheld(reports[0], "nobody holds the state that the optimizer makes of the recorded reduced gradient")
        self._compare_among(reports)

    def _compare_among(self, reports: list[StateReport]) -> None:
        for report in reports[1:]:
            self.compared += 1
            if report.digests != reports[0].digests and report.generation == reports[0].generation:
                self._on_deviation(report, f"holds another state than {reports[0].role}")
