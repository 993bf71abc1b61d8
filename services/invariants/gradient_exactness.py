"""Gradient exactness: what was applied is the gradient of the committed samples, and the optimizer step from it.

For each committed step the reduced value is compared with the reference gradient over the union of its samples, and
every contribution that was recorded whole with the reference over that contributor's own samples, so that a lying or
faulty member is named; so are the losses that members and commits tell. Of a large model's contributions only digests
are recorded: there a member is named when its gradient, counted with another weight, explains the whole error. The
tolerances follow from rounding (`services.reference`, "Noise floor"). The optimizer is replayed bit by bit from the
recorded value (`services.ledger`), and somebody must hold the state that comes out.

Steps are judged in blocks, since one trace of autograd costs as much for many small steps as for one. A block is a
number of steps that follows from the first step's size, so a rerun cuts the same blocks.
"""

from __future__ import annotations

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Step, worker_role
from services.messages import Array
from services.reference import SLICE_ELEMENTS, TOLERANCE_FLOORS, Answers, Ids, Question
from services.replay import replay_sum
from services.state_reports import StateReport

BLOCK_ELEMENTS = 1 << 16  # samples x parameters judged in one trace
BLOCK_STEPS_MAX = 64
EXPLAINED = 1e-9  # of the largest excess may be left over
FAR_FROM_OVERFLOW = 1e300
TOLERANCE_SHARE_MAX = 1e-3  # of the largest element that a gradient has, or can have: a wider tolerance tells nothing


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

    def add(self, errors: Array, smallest_bugs: Array, floors: Array) -> None:
        """Of some steps, one element each. What is no number is left out: it is a violation of its own."""
        some = np.isfinite(errors) & (floors > 0)
        self.noise_floor = max(self.noise_floor, float(floors.max()))
        self.smallest_bug = min(self.smallest_bug, float(smallest_bugs.min()))
        if some.any():
            self.worst_error = max(self.worst_error, float(errors[some].max()))
            self.worst_error_floors = max(self.worst_error_floors, float((errors[some] / floors[some]).max()))
            bugs = smallest_bugs[some] / floors[some]
            self.smallest_bug_floors = min(self.smallest_bug_floors, float(bugs.min()))

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
        self._unjudged: set[int] = set()  # id of each step of the block of which something could not be judged

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
        try:
            self._judge_steps(steps)
        except (IndexError, ValueError) as error:  # ids beyond the data, a value of another size
            if len(steps) == 1:
                self.cannot_say(f"step {steps[0].number} could not be judged: {error}")
                return
            for step in steps:
                self._block = [step]
                self._judge_block()

    def _judge_steps(self, steps: list[Step]) -> None:
        reference = self.ledger.reference
        assert reference is not None
        self._unjudged = set()
        questions = []
        for step in steps:
            assert step.before is not None
            questions.append(Question(step.before.parameters, step.committed.sample_ids))
        answers = reference.answer(questions)
        taken = [place for place, step in enumerate(steps) if not step.committed.skip]
        if taken:
            # First what one member told: a wrong contribution makes the sum wrong.
            self._judge_contributions(steps, taken, answers)
            for place in taken:
                self._judge_losses(steps[place], questions[place])
            self._judge_values(steps, taken, answers)
        for place, step in enumerate(steps):
            if step.committed.skip:
                self._judge_skip(step, answers.unions[place])
            if id(step) not in self._unjudged:
                step.lineage.checked.add(step.number)

    def _judge_values(self, steps: list[Step], taken: list[int], answers: Answers) -> None:
        """The reduced values of the steps at `taken`."""
        values = []
        for place in taken:
            reduced = steps[place].reduced
            assert reduced is not None
            assert reduced.value is not None
            values.append(reduced.value)
        own, floors = answers.unions[taken], answers.union_floors[taken]
        errors = _errors(values, own)
        self.figures.add(errors, _smallest_bugs(answers)[taken], floors)
        self.checks += len(taken)
        blind = self._blind([steps[place] for place in taken], own, floors)
        for row in np.flatnonzero(~(errors <= TOLERANCE_FLOORS * floors) & ~blind).tolist():
            reduced = steps[taken[row]].reduced
            assert reduced is not None
            differs = _Difference(values[row], own[row], float(floors[row]))
            self._wrong_value(steps[taken[row]], taken[row], differs, answers)

    def _wrong_value(self, step: Step, place: int, differs: _Difference, answers: Answers) -> None:
        """Say whose doing it is, if that can be told where not all contributions can be seen."""
        assert step.reduced is not None
        role, how = worker_role(step.reduced.worker), ""
        if not step.whole:  # else each contribution was judged by itself
            start, count = int(answers.starts[place]), int(answers.counts[place])
            weights = answers.sizes[start : start + count] / answers.totals[place]
            shares = weights[:, None] * answers.groups[start : start + count]
            workers = [worker for worker, _, _ in step.committed.contributors]
            how = f"; it may be the doing of any of workers {workers}, whose gradients are not recorded"
            for at, times in _explaining(differs.told - differs.own, shares):
                how = f"; it counts what worker {workers[at]} has to contribute {times:.6g} times"
                if abs(times) > EXPLAINED and abs(times - 2.0) > EXPLAINED:  # else: who adds
                    role = worker_role(workers[at])
        self.violated(step.number, role, f"the reduced gradient {differs}{how}", step.entry.seq)

    def _blind(self, steps: list[Step], own: Array, floors: Array) -> npt.NDArray[np.bool_]:
        """Which gradients, of these steps, cannot be judged: rounding alone may make as much."""
        assert self.ledger.reference is not None
        largest = np.maximum(_largest(own), self.ledger.reference.scale)
        blind = ~(TOLERANCE_FLOORS * floors <= TOLERANCE_SHARE_MAX * largest)
        for row in np.flatnonzero(blind).tolist():
            tolerance = f"rounding alone may make {TOLERANCE_FLOORS * float(floors[row]):.3g} of a gradient"
            self._unjudgeable(steps[row], f": its parameters are so large that {tolerance}")
        return blind

    def _unjudgeable(self, step: Step, why: str) -> None:
        """It counts as a step that was not checked; why is said once."""
        if id(step) not in self._unjudged:
            self._unjudged.add(id(step))
            self.cannot_say(f"step {step.number}{why}")

    def _judge_contributions(self, steps: list[Step], taken: list[int], answers: Answers) -> None:
        """Every contribution to these steps that was recorded whole."""
        found: list[tuple[Step, int, int, Array]] = []  # step, worker, row of its group, gradient
        for place in taken:
            step = steps[place]
            for at, (worker, _, _) in enumerate(step.committed.contributors, start=int(answers.starts[place])):
                contributed = step.contributions.get(worker)
                if contributed is not None and contributed.gradient is not None:
                    found.append((step, worker, at, contributed.gradient))
        if not found:
            return
        rows = [at for _, _, at, _ in found]
        own, floors = answers.groups[rows], answers.group_floors[rows]
        errors = _errors([gradient for _, _, _, gradient in found], own)
        self.checks += len(found)
        blind = self._blind([step for step, _, _, _ in found], own, floors)
        for row in np.flatnonzero(~(errors <= TOLERANCE_FLOORS * floors) & ~blind).tolist():
            step, worker, _, gradient = found[row]
            role = worker_role(worker)
            self._differs(
                step, role, f"the contribution of {role}", _Difference(gradient, own[row], float(floors[row]))
            )

    def _judge_losses(self, step: Step, question: Question) -> None:
        """What members and the commit say of the loss; where the reference's overflows there is nothing to compare."""
        assert self.ledger.reference is not None
        own = self.ledger.reference.losses(question)
        if not math.isfinite(own.union):
            return
        self.checks += 1
        honest = True
        committed = step.committed
        for (worker, _, _), ids, expected in zip(committed.contributors, committed.sample_ids, own.groups, strict=True):
            told = step.contributions.get(worker)
            if told is not None and told.sample_ids == ids and not abs(told.loss - expected) <= own.tolerance:
                honest = False
                what = f"a loss of {told.loss!r} was told for its samples, they have {expected!r}"
                self.violated(step.number, worker_role(worker), what, step.entry.seq)
        if honest and not abs(committed.loss - own.union) <= own.tolerance:
            what = f"committed with a loss of {committed.loss!r}, its samples have {own.union!r}"
            self.violated(step.number, COORDINATOR, what, step.entry.seq)

    def _differs(self, step: Step, role: str, what: str, difference: _Difference) -> None:
        self.violated(step.number, role, f"{what} {difference}", step.entry.seq)

    def _judge_skip(self, step: Step, own: Array) -> None:
        """A skip is right only when something really was not finite: what the offenders contributed, or the sum.

        `own` is the reference's gradient. A skip without a digest follows from what the members offered; one with a
        digest from the sum, although every member had offered what is finite.
        """
        self.checks += 1
        committed = step.committed
        values = {worker: item.gradient for worker, item in step.contributions.items()}
        bad = [worker for worker, value in values.items() if value is not None and not np.isfinite(value).all()]
        unseen = [worker for worker, _, _ in committed.contributors if values.get(worker) is None]
        blamed = worker_role(committed.offenders[0]) if committed.offenders else COORDINATOR
        if bad and committed.reduced_digest:
            what = "contributed what is not finite, and offered it as finite; the skip could not name it"
            self.violated(step.number, worker_role(bad[0]), what, step.entry.seq)
        elif bad:
            if not set(bad) <= set(committed.offenders):
                what = f"the skip names {list(committed.offenders)}; what {sorted(bad)} contributed is not finite"
                self.violated(step.number, COORDINATOR, what, step.entry.seq)
            elif not set(committed.offenders) <= {*bad, *unseen}:
                what = f"the skip names {list(committed.offenders)}; only what {sorted(bad)} contributed is not finite"
                self.violated(step.number, COORDINATOR, what, step.entry.seq)
        elif step.reduced is not None and step.reduced.value is not None:
            if np.isfinite(step.reduced.value).all():
                self.violated(step.number, blamed, "skipped although the reduced value is finite", step.entry.seq)
            elif unseen and float(np.abs(own).max(initial=0.0)) < FAR_FROM_OVERFLOW:
                members = ", ".join(worker_role(worker) for worker, _, _ in committed.contributors)
                what = "the gradient of its samples is finite, so a contribution was not; none is recorded whole"
                self._unjudgeable(step, f" was skipped: {what}, of {members}")
        elif unseen:
            self._unjudgeable(step, " was skipped, and what was not finite about it was not recorded")
        elif np.isfinite(replay_contributions(step)).all():
            self.violated(step.number, blamed, "skipped although all contributions are finite", step.entry.seq)


def _explaining(excess: Array, shares: Array) -> Iterator[tuple[int, float]]:
    """Which rows of `shares` (S, P), counted another number of times, explain the whole excess (P,), and how often."""
    with np.errstate(all="ignore"):
        largest = float(np.abs(excess).max())
        for at, share in enumerate(shares):
            more = float((excess @ share) / (share @ share))  # NaN where it is all zeros
            if float(np.abs(excess - more * share).max()) <= EXPLAINED * largest:
                yield at, 1.0 + more


def replay_contributions(step: Step) -> Array:
    """The sum of a step's contributions, all recorded whole, in the order of the commit."""
    ordered: list[tuple[int, Array]] = []
    for worker, _, count in step.committed.contributors:
        gradient = step.contributions[worker].gradient
        assert gradient is not None
        ordered.append((count, gradient))
    return replay_sum(ordered, step.committed.total)


@dataclass(frozen=True, slots=True, eq=False)
class _Difference:
    """A value, the reference's, and the floor below which they may differ."""

    told: Array
    own: Array
    floor: float

    def __str__(self) -> str:
        with np.errstate(all="ignore"):
            errors = np.abs(self.told - self.own)
        at = int(errors.argmax())  # the first NaN, if there is one
        return (
            f"differs from the reference by {float(errors[at]):.3g}, tolerance {TOLERANCE_FLOORS * self.floor:.3g}"
            f" (element {at}: {float(self.told[at])!r} against {float(self.own[at])!r})"
        )


def _errors(told: list[Array], own: Array) -> Array:
    """The largest error of each row; NaN where anything is not a number. Raises ValueError for another size."""
    if any(value.shape != own.shape[1:] for value in told):
        raise ValueError(f"a gradient does not have the {own.shape[1]} elements of the model")
    with np.errstate(all="ignore"):
        return _largest(np.array(told), own, np.arange(len(told)))


def _largest(values: Array, others: Array | None = None, rows: Ids | None = None) -> Array:
    """The largest magnitude in each row of `values`, or of its difference from its row of `others`; NaN if any is.

    A slice of columns at a time, so that what is made on the way stays in the cache.
    """
    found = np.zeros(len(values))
    for start in range(0, values.shape[1], SLICE_ELEMENTS):
        part = values[:, start : start + SLICE_ELEMENTS]
        if others is not None:
            part = part - others[rows, start : start + SLICE_ELEMENTS]
        np.maximum(found, np.abs(part).max(axis=1), out=found)
    return found


def _smallest_bugs(answers: Answers) -> Array:
    """For each step the smallest change (of its largest element) that one contribution dropped, dropped with the rest
    re-weighted, or doubled would make, or a mean of means where sizes differ. (K,)"""
    weights = answers.sizes / answers.totals.repeat(answers.counts)
    owners = np.arange(len(answers.counts)).repeat(answers.counts)
    with np.errstate(all="ignore"):
        changes = weights * _largest(answers.groups)  # dropped or doubled
        away = _largest(answers.groups, answers.unions, owners)
        reweighted = np.where(weights < 1, away * weights / (1 - weights), math.inf)
    smallest: Array = np.minimum.reduceat(np.minimum(changes, reweighted), answers.starts)
    for place, (start, count) in enumerate(zip(answers.starts.tolist(), answers.counts.tolist(), strict=True)):
        sizes = answers.sizes[start : start + count]
        if count > 1 and sizes.min() != sizes.max():
            mean_of_means = answers.groups[start : start + count].mean(axis=0)
            change = float(np.abs(mean_of_means - answers.unions[place]).max())
            smallest[place] = min(float(smallest[place]), change)
    return smallest
