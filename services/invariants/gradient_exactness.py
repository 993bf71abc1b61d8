"""Gradient exactness: what was applied is the gradient of the committed samples, and the optimizer step from it.

For each committed step the reduced value is compared with the reference gradient over the union of its samples, and
every contribution that was recorded whole with the reference over that contributor's own samples, so that a lying or
faulty member is named. The tolerance follows from rounding (`services.reference`, "Noise floor"). The optimizer is
replayed bit by bit from the recorded value (`services.ledger`), and somebody must hold the state that comes out.

Steps are judged in blocks, since one trace of autograd costs as much for many small steps as for one. A block is a
number of steps that follows from the first step's size, so a rerun cuts the same blocks.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from services.invariants.base import Invariant
from services.ledger import COORDINATOR, Ledger, Step, worker_role
from services.messages import Array
from services.reference import TOLERANCE_FLOORS, Answer, Question
from services.replay import replay_sum
from services.state_reports import StateReport

BLOCK_ELEMENTS = 1 << 16  # samples x parameters judged in one trace
BLOCK_STEPS_MAX = 64


@dataclass(slots=True)
class Figures:
    """What is published beside the verdict; the bug figures are infinite until a step was judged.

    The `_floors` figures are in noise floors of the step that they come from.
    """

    noise_floor: float = 0.0
    worst_error: float = 0.0
    worst_error_floors: float = 0.0
    smallest_bug: float = math.inf
    smallest_bug_floors: float = math.inf

    def add(self, error: float, smallest_bug: float, floor: float) -> None:
        self.noise_floor = max(self.noise_floor, floor)
        self.worst_error = max(self.worst_error, error)
        self.smallest_bug = min(self.smallest_bug, smallest_bug)
        if floor > 0:
            self.worst_error_floors = max(self.worst_error_floors, error / floor)
            self.smallest_bug_floors = min(self.smallest_bug_floors, smallest_bug / floor)

    def document(self) -> dict[str, Any]:
        def finite(value: float) -> float | None:
            return value if math.isfinite(value) else None

        return {
            "noise_floor": self.noise_floor,
            "tolerance": TOLERANCE_FLOORS * self.noise_floor,
            "tolerance_floors": TOLERANCE_FLOORS,
            "worst_error": finite(self.worst_error),
            "worst_error_floors": finite(self.worst_error_floors),
            "smallest_detectable_bug": finite(self.smallest_bug),
            "smallest_detectable_bug_floors": finite(self.smallest_bug_floors),
        }


class GradientExactness(Invariant):
    name = "gradient exactness"
    holds_when = (
        "the reduced gradient equals the single-process gradient over the union of the contributing samples,"
        " and the optimizer step from it is replayed bitwise"
    )

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.figures = Figures()
        self._block: list[Step] = []
        self._block_steps = 0

    def on_complete(self, step: Step) -> None:
        reference = self.ledger.reference
        if reference is None:
            return  # the judge says why
        if not self._block_steps:
            elements = max(1, step.committed.total) * reference.parameter_count
            self._block_steps = min(BLOCK_STEPS_MAX, 1 + BLOCK_ELEMENTS // elements)
        self._block.append(step)
        if len(self._block) >= self._block_steps:
            self._judge_block()

    def on_unheld(self, report: StateReport, what: str) -> None:
        self.violated(report.step, report.role, f"{what}; {report.role} holds {report.digests[0][:12]}…", report.seq)

    def finish(self) -> None:
        if self._block:
            self._judge_block()

    # ------------------------------------------------------------ inside

    def _judge_block(self) -> None:
        steps, self._block = self._block, []
        reference = self.ledger.reference
        assert reference is not None
        questions = []
        for step in steps:
            assert step.before is not None
            questions.append(Question(step.before.parameters, step.committed.sample_ids))
        for step, answer in zip(steps, reference.answer(questions), strict=True):
            if step.committed.skip:
                self._judge_skip(step)
            else:
                self._judge_step(step, answer)
            step.lineage.checked.add(step.number)

    def _judge_step(self, step: Step, answer: Answer) -> None:
        assert step.reduced is not None
        assert step.reduced.value is not None
        role = worker_role(step.reduced.worker)
        error = self._compare(step, role, "the reduced gradient", step.reduced.value, answer.union, answer.union_floor)
        committed = step.committed
        self.figures.add(error, _smallest_bug(committed.contributors, committed.total, answer), answer.union_floor)
        for place, (worker, _, _) in enumerate(committed.contributors):
            contributed = step.contributions.get(worker)
            if contributed is not None and contributed.gradient is not None:
                role = worker_role(worker)
                own, floor = answer.groups[place], answer.group_floors[place]
                self._compare(step, role, f"the contribution of {role}", contributed.gradient, own, floor)

    def _compare(self, step: Step, role: str, what: str, told: Array, own: Array, floor: float) -> float:
        """The largest error; a violation when it is above the tolerance or no number."""
        self.checks += 1
        if told.shape != own.shape:
            self.violated(step.number, role, f"{what} has {told.size} elements, the model {own.size}", step.entry.seq)
            return math.nan
        with np.errstate(all="ignore"):
            errors = np.abs(told - own)
        error = float(errors.max())
        if not error <= TOLERANCE_FLOORS * floor:
            at = int(errors.argmax())  # the first NaN, if there is one
            self.violated(
                step.number, role, f"{what} differs from the reference by {error:.3g}, tolerance"
                f" {TOLERANCE_FLOORS * floor:.3g} (element {at}: {float(told[at])!r} against {float(own[at])!r})",
                step.entry.seq,
            )  # fmt: skip
        return error

    def _judge_skip(self, step: Step) -> None:
        """A skip is right only when something really was not finite: what the offenders contributed, or the sum."""
        self.checks += 1
        committed = step.committed
        values = {worker: item.gradient for worker, item in step.contributions.items()}
        bad = [worker for worker, value in values.items() if value is not None and not np.isfinite(value).all()]
        unseen = [worker for worker, _, _ in committed.contributors if values.get(worker) is None]
        blamed = worker_role(committed.offenders[0]) if committed.offenders else COORDINATOR
        if bad:
            if not set(bad) <= set(committed.offenders):
                what = f"the skip names {list(committed.offenders)}; what {sorted(bad)} contributed is not finite"
                self.violated(step.number, COORDINATOR, what, step.entry.seq)
            elif not set(committed.offenders) <= {*bad, *unseen}:
                what = f"the skip names {list(committed.offenders)}; only what {sorted(bad)} contributed is not finite"
                self.violated(step.number, COORDINATOR, what, step.entry.seq)
        elif step.reduced is not None and step.reduced.value is not None:
            if np.isfinite(step.reduced.value).all():
                self.violated(step.number, blamed, "skipped although the reduced value is finite", step.entry.seq)
        elif unseen:
            self.cannot_say(f"step {step.number} was skipped, and what was not finite about it was not recorded")
        elif np.isfinite(replay_contributions(step)).all():
            self.violated(step.number, blamed, "skipped although all contributions are finite", step.entry.seq)


def replay_contributions(step: Step) -> Array:
    """The sum of a step's contributions, all recorded whole, in the order of the commit."""
    ordered: list[tuple[int, Array]] = []
    for worker, _, count in step.committed.contributors:
        gradient = step.contributions[worker].gradient
        assert gradient is not None
        ordered.append((count, gradient))
    return replay_sum(ordered, step.committed.total)


def _smallest_bug(contributors: tuple[tuple[int, int, int], ...], total: int, answer: Answer) -> float:
    """The smallest change (largest element) that one contribution dropped, dropped and the rest re-weighted, or
    doubled, or a mean of means, would make to this step's gradient."""
    counts = np.array([count for _, _, count in contributors], dtype=np.float64)
    weights = counts / total
    smallest = float((weights * np.abs(answer.groups).max(axis=1)).min())  # dropped or doubled
    if len(contributors) == 1:
        return smallest
    others = weights / (1 - weights)
    reweighted = np.abs(answer.groups - answer.union).max(axis=1) * others
    smallest = min(smallest, float(reweighted.min()))
    if counts.min() != counts.max():
        smallest = min(smallest, float(np.abs(answer.groups.mean(axis=0) - answer.union).max()))
    return smallest
