"""Does the schedule make sense of who is there? Nobody dies twice, and somebody always stays."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence

from chaos.fault_kinds.base import PhaseTrigger
from chaos.fault_kinds.links import Cut
from chaos.fault_kinds.roles import AddWorker, Straggle
from chaos.faults import AnyFault
from chaos.membership import (
    ON_ITS_WAY,
    Life,
    blackouts,
    faults_on,
    leaves,
    lives_of,
    steady_workers,
    targets_of,
    workers_of,
)
from chaos.problem import Problem, at_fault
from services.events import worker_id


def member_problems(faults: Sequence[AnyFault], workers: int, steps: int) -> Iterator[Problem]:
    """Complaints about targets that are not there, joins that cannot be, and steps that nobody would survive."""
    yield from _additions(faults, workers)
    yield from _strangers(faults, workers)
    for worker in workers_of(faults, workers):
        yield from _worker_problems(faults, workers, worker)
    yield from _joins_after_all_died(faults, workers)
    yield from _deserted_steps(faults, workers, steps)


def _additions(faults: Sequence[AnyFault], workers: int) -> Iterator[Problem]:
    added: set[str] = set()
    for index, fault in enumerate(faults):
        if not isinstance(fault, AddWorker):
            continue
        if worker_id(fault.target) <= workers or fault.target in added:
            text = f"{fault.target} is there already; a new worker's number is above {max(workers, len(added))}"
            yield at_fault(index, ("target",), text)
        if fault.step < 2:
            yield at_fault(index, ("step",), "who takes part from step 1 on belongs to training.workers")
        added.add(fault.target)


def _strangers(faults: Sequence[AnyFault], workers: int) -> Iterator[Problem]:
    known = workers_of(faults, workers)
    for index, fault in enumerate(faults):
        if isinstance(fault, Cut):
            continue  # chaos.checks looks at links
        for target in targets_of(fault):
            if worker_id(target) not in known:
                names = f"worker-1 to worker-{workers}" if workers > 1 else "worker-1"
                extra = [f"worker-{worker}" for worker in known if worker > workers]
                more = f" and adds {', '.join(extra)}" if extra else ""
                yield at_fault(index, ("target",), f"{target} does not exist; the run has {names}{more}")


def _worker_problems(faults: Sequence[AnyFault], workers: int, worker: int) -> Iterator[Problem]:
    lives = lives_of(faults, worker, workers)
    enders = {life.ended_by for life in lives}
    on_it = faults_on(faults, worker)
    slow = {fault.step for _, _, fault in on_it if isinstance(fault, Straggle)}
    stand = Counter(position for position, _, _ in on_it)
    for position, index, fault in on_it:
        if stand[position] > 1:
            yield at_fault(index, (), f"worker-{worker} stands at this point for two faults; one of them must go")
            continue
        there = index in enders if leaves(fault) else any(life.holds(position) for life in lives)
        if not there:
            yield at_fault(index, _step_path(fault), _why_absent(lives, worker, position[0], faults))
        elif position[1] <= ON_ITS_WAY and not any(life.joined and life.start == position[0] for life in lives):
            text = f"worker-{worker} is not on its way in at step {position[0]}; sync and proved are a joiner's phases"
            yield at_fault(index, ("trigger", "phase"), text)
        elif position[0] in slow and isinstance(fault.starts, PhaseTrigger) and fault.starts.phase in _CONTRIBUTING:
            text = f"worker-{worker} straggles in step {position[0]}, so it does not come to {fault.starts.phase} there"
            yield at_fault(index, ("trigger", "phase"), text)


_CONTRIBUTING = ("reduce", "ready")


def _step_path(fault: AnyFault) -> tuple[str, ...]:
    return ("step",) if isinstance(fault, Straggle) else ("trigger", "step")


def _why_absent(lives: Sequence[Life], worker: int, step: int, faults: Sequence[AnyFault]) -> str:
    before = [life for life in lives if life.end is not None and life.end[0] <= step]
    later = [life.start for life in lives if life.start > step or (life.joined and life.start == step)]
    if not before:
        return f"worker-{worker} is not there in step {step}; it joins in step {later[0] if later else '?'}"
    last = before[-1]
    back = f"comes back in step {later[0]}" if later else "does not come back"
    assert last.end is not None
    assert last.ended_by is not None
    return (
        f"worker-{worker} is gone by then: fault {last.ended_by + 1} takes it out in step {last.end[0]}, and it {back}"
    )


def _joins_after_all_died(faults: Sequence[AnyFault], workers: int) -> Iterator[Problem]:
    """When everyone dies in step s, the next open waits for all of them under the number s + 1, and for nobody else."""
    taken = {position[0] + 1 for position in blackouts(faults)}
    for worker in workers_of(faults, workers):
        for life in lives_of(faults, worker, workers):
            if life.begun_by is not None and life.start in taken:
                text = f"everyone dies in step {life.start - 1}, so worker-{worker} can take part from step"
                yield at_fault(life.begun_by, (), f"{text} {life.start + 1} on at the earliest")


def _deserted_steps(faults: Sequence[AnyFault], workers: int, steps: int) -> Iterator[Problem]:
    """In every step at least one worker is there from beginning to end and contributes in time."""
    last_at: dict[int, int] = {}
    for index, fault in enumerate(faults):
        start = fault.starts
        if targets_of(fault) and isinstance(start, PhaseTrigger):
            last_at[start.step] = index
    steady = steady_workers(faults, workers, last_at)
    for step, index in sorted(last_at.items()):
        if step <= steps and not steady[step]:
            text = (
                f"nobody would be left in step {step}: one worker must stay and contribute."
                " To kill all and go back to a checkpoint, kill everyone"
            )
            yield at_fault(index, (), text)
