"""Who takes part in which step, as the schedule has it: lives of workers, and the joins that an open waits for.

A position is (step, order, chunk), with `order` from `chaos.phases.phase_order`: negative while a worker is on its
way in. Faults that a clock triggers have no position; a worker that they may take is never counted on.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from chaos.fault_kinds.base import EVERYONE, PhaseTrigger, TimeTrigger, is_worker
from chaos.fault_kinds.links import Cut
from chaos.fault_kinds.roles import AddWorker, Kill, Killing, Pause, Straggle
from chaos.faults import AnyFault
from chaos.phases import find_phase, phase_order
from services.events import worker_id

Position = tuple[int, float, int]

# Between which phases of the workers (open 0, offer 1, reduce 2, ready 3, apply 4) the other roles have theirs.
ON_ITS_WAY = -1.0  # a joiner's phases are at or below
_BETWEEN = {"opened": -0.5, "closed": 1.5, "gathering": 2.5, "publishing": 2.5, "decide": 3.5, "tell": 3.5}


@dataclass(frozen=True, slots=True)
class Life:
    """One stretch of a worker's membership, from the open of step `start` (a join, unless first cast) to `end`."""

    start: int
    begun_by: int | None  # index of the fault that brings it in or back; None: first cast
    end: Position | None = None
    ended_by: int | None = None  # index of the fault

    @property
    def joined(self) -> bool:
        """Whether it begins with a proof of the state."""
        return self.begun_by is not None

    @property
    def takes_part(self) -> bool:
        """Whether it gets as far as a step: not when it is killed on its way in."""
        return self.end is None or self.end[1] > ON_ITS_WAY

    def covers(self, step: int) -> bool:
        """Whether it spans the whole step."""
        return self.start <= step and (self.end is None or self.end[0] > step)

    def holds(self, position: Position) -> bool:
        """Whether the worker is there at this position, on its way in included."""
        earliest: Position = (self.start, -9.0 if self.joined else -0.5, 0)
        return earliest <= position and (self.end is None or position < self.end)


def position_of(trigger: PhaseTrigger) -> Position:
    """Where in the run a trigger stands. The phase must be one of its role's."""
    role = trigger.role or ""
    order: float = phase_order(role, trigger.phase) if is_worker(role) else _BETWEEN.get(trigger.phase, 9.0)
    return (trigger.step, order, trigger.chunk)


def targets_of(fault: AnyFault) -> tuple[str, ...]:
    """Workers that it concerns one by one: kills, pauses, slows, or cuts off past the lease."""
    if isinstance(fault, Cut):
        return fault.cut_off if fault.return_at is not None else ()
    return (fault.target,) if isinstance(fault, Killing | Pause | Straggle) and is_worker(fault.target) else ()


def leaves(fault: AnyFault) -> bool:
    """Whether its targets stop being members."""
    return isinstance(fault, Killing) or returns_at(fault) is not None


def returns_at(fault: AnyFault) -> int | None:
    """The step from which its targets take part again."""
    if isinstance(fault, Killing):
        return fault.relaunch_at
    return fault.return_at if isinstance(fault, Pause | Cut) else None


def workers_of(faults: Sequence[AnyFault], workers: int) -> tuple[int, ...]:
    """Every worker that the run ever has, ascending."""
    added = {worker_id(fault.target) for fault in faults if isinstance(fault, AddWorker)}
    return tuple(sorted(added | set(range(1, workers + 1))))


def faults_on(faults: Sequence[AnyFault], worker: int) -> list[tuple[Position, int, AnyFault]]:
    """Faults that a phase triggers on this worker: (position, index, fault), in the order of the run.

    A fault whose phase is unknown is left out; `chaos.checks` complains about it.
    """
    found = []
    for index, fault in enumerate(faults):
        if f"worker-{worker}" not in targets_of(fault):
            continue
        start = fault.starts
        if isinstance(start, PhaseTrigger) and find_phase(start.role or "", start.phase):
            found.append((position_of(start), index, fault))
    return sorted(found, key=lambda item: item[:2])


def lives_of(faults: Sequence[AnyFault], worker: int, workers: int) -> tuple[Life, ...]:
    """The lives of one worker. Faults that do not fit are passed over; `chaos.checks` complains about them."""
    added = [
        Life(fault.step, index)
        for index, fault in enumerate(faults)
        if isinstance(fault, AddWorker) and worker_id(fault.target) == worker
    ]
    life = Life(1, None) if worker <= workers else next(iter(added), None)
    done: list[Life] = []
    for position, index, fault in faults_on(faults, worker):
        if life is None or not leaves(fault) or not life.holds(position):
            continue
        done.append(replace(life, end=position, ended_by=index))
        back = returns_at(fault)
        life = Life(back, index) if back is not None and back > position[0] else None
    return tuple(done) if life is None else (*done, life)


def unsure_workers(faults: Sequence[AnyFault]) -> frozenset[int]:
    """Workers that a clock may take at any moment."""
    timed = [fault for fault in faults if isinstance(fault, Killing | Pause) and isinstance(fault.starts, TimeTrigger)]
    return frozenset(worker_id(fault.target) for fault in timed if is_worker(fault.target))


def steady_workers(faults: Sequence[AnyFault], workers: int, steps: Iterable[int]) -> dict[int, tuple[int, ...]]:
    """By step: the workers that are members through the whole of it and contribute in time, ascending."""
    unsure = unsure_workers(faults)
    slow = {(fault.step, worker_id(fault.target)) for fault in faults if isinstance(fault, Straggle)}
    lives = {
        worker: lives_of(faults, worker, workers) for worker in workers_of(faults, workers) if worker not in unsure
    }
    return {
        step: tuple(
            worker for worker, its in lives.items() if (step, worker) not in slow and _latest(its, step).covers(step)
        )
        for step in steps
    }


def _latest(lives: Sequence[Life], step: int) -> Life:
    """The one that began last up to `step`: no other can cover it, since they follow each other."""
    return lives[max(0, bisect_right(lives, step, key=lambda life: life.start) - 1)]


def expected_joins(faults: Sequence[AnyFault], workers: int) -> tuple[tuple[int, int], ...]:
    """(step, worker): the open of `step` waits for that worker. Ascending.

    After everybody was killed in step s, whoever was a member is expected by the next open: the coordinator counts
    from the highest step that it ever opened, so that is s + 1 whatever checkpoint the run goes back to.
    """
    joins: set[tuple[int, int]] = set()
    for worker in workers_of(faults, workers):
        lives = lives_of(faults, worker, workers)
        joins |= {(life.start, worker) for life in lives if life.joined}
        for position in blackouts(faults):
            if any(life.holds(position) for life in lives):
                joins.add((position[0] + 1, worker))
    joins |= _timed_returns(faults)
    return tuple(sorted(joins))


def blackouts(faults: Sequence[AnyFault]) -> list[Position]:
    """Where everyone dies, ascending."""
    starts = [fault.starts for fault in faults if isinstance(fault, Killing) and fault.target == EVERYONE]
    return sorted(position_of(start) for start in starts if isinstance(start, PhaseTrigger))


def _timed_returns(faults: Sequence[AnyFault]) -> set[tuple[int, int]]:
    return {
        (fault.relaunch_at, worker_id(fault.target))
        for fault in faults
        if isinstance(fault, Kill) and isinstance(fault.starts, TimeTrigger) and fault.relaunch_at is not None
    }
