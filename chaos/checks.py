"""Is a well-typed scenario also sense? Every complaint names the place in the scenario and what to do.

Each check is a generator over the scenario; `problems` runs them all. Membership has its own file, `checks_members`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chaos.checks_members import member_problems
from chaos.checks_shards import once_only_problems, point_problems, role_problems, roles_of, strategy_problems
from chaos.expect import scheduled, scheduled_for_shards
from chaos.fault_kinds.base import EVERYONE, PhaseTrigger, TimeTrigger, is_worker, nearest
from chaos.fault_kinds.disks import CorruptCheckpoint
from chaos.fault_kinds.links import Cut, LinkFault
from chaos.fault_kinds.roles import AddWorker, Killing, Pause, Straggle
from chaos.faults import AnyFault
from chaos.membership import returns_at, workers_of
from chaos.phases import find_phase, phases_of
from chaos.problem import Problem, at_fault
from chaos.shard_setup import ShardTrainingSetup
from services.events import COORDINATOR, SERVER

if TYPE_CHECKING:
    from chaos.scenario import Scenario

CHECKPOINTS_KEPT = 3


def problems(scenario: Scenario) -> list[Problem]:
    """Everything that is wrong with the scenario, in the order of its text; empty when it can be run."""
    found = [*strategy_problems(scenario), *fault_problems(scenario)]
    if not found:  # the rest needs points that make sense
        if scenario.sharded:
            found += once_only_problems(scenario)
        else:
            found += member_problems(scenario.faults, scenario.training.workers, scenario.training.steps)
            found += _checkpoint_problems(scenario)
        found += _once_only_problems(scenario)
        found += _clean_problems(scenario)
    found += _whole_problems(scenario)
    return found


def fault_problems(scenario: Scenario) -> list[Problem]:
    """What is wrong with each fault by itself, whatever the others are."""
    found: list[Problem] = []
    known = frozenset(f"worker-{worker}" for worker in workers_of(scenario.faults, scenario.training.workers))
    for index, fault in enumerate(scenario.faults):
        found += role_problems(scenario, index, fault)
        found += _point_problems(scenario, index, fault)
        found += _own_problems(scenario, index, fault, known)
    return found


# ---------------------------------------------------------------- points


def _point_problems(scenario: Scenario, index: int, fault: AnyFault) -> Iterator[Problem]:
    """The points at which it begins and ends exist, and lie within the run."""
    if isinstance(fault, Straggle | AddWorker):
        yield from _step_problems(scenario, index, ("step",), fault.step)
        return
    start = fault.starts
    if isinstance(start, PhaseTrigger):
        yield from _phase_problems(scenario, index, ("trigger",), start)
    if fault.ends is not None:
        yield from _phase_problems(scenario, index, ("until",), fault.ends)
        if isinstance(start, PhaseTrigger) and fault.ends.step < start.step:
            text = f"ends in step {fault.ends.step}, before it begins in step {start.step}"
            yield at_fault(index, ("until", "step"), text)


def _step_problems(scenario: Scenario, index: int, path: tuple[str, ...], step: int) -> Iterator[Problem]:
    steps = scenario.training.steps
    if step > steps:
        yield at_fault(index, path, f"step {step} is beyond the run, which has {steps} steps")


def _phase_problems(scenario: Scenario, index: int, path: tuple[str, ...], point: PhaseTrigger) -> Iterator[Problem]:
    yield from _step_problems(scenario, index, (*path, "step"), point.step)
    if point.role is None:
        yield at_fault(index, path, "name the role whose phase this is")
        return
    if find_phase(point.role, point.phase, scenario.sharded) is None:
        names = [info.name for info in phases_of(point.role, scenario.sharded)]
        text = f"unknown phase {point.phase!r} for {point.role}{nearest(point.phase, names)}"
        yield at_fault(index, (*path, "phase"), text)
    elif isinstance(scenario.training, ShardTrainingSetup):
        yield from point_problems(scenario.training, index, path, point)
    if not scenario.sharded:
        yield from _chunk_problems(scenario, index, path, point)


def _chunk_problems(scenario: Scenario, index: int, path: tuple[str, ...], point: PhaseTrigger) -> Iterator[Problem]:
    if point.chunk == 0:
        return
    count = scenario.training.chunk_count
    if point.phase != "reduce":
        yield at_fault(index, (*path, "chunk"), f"only reduce has chunks, {point.phase} has none")
    elif count is not None and point.chunk >= count:
        text = (
            f"after chunk {point.chunk} is no point: the gradient has {count} chunk{'s' * (count > 1)};"
            " choose 1 to one below that, or smaller chunk_elements"
        )
        yield at_fault(index, (*path, "chunk"), text)


# ---------------------------------------------------------------- one fault


def _own_problems(scenario: Scenario, index: int, fault: AnyFault, known: frozenset[str]) -> Iterator[Problem]:
    for engine in scenario.engines:
        if engine not in fault.able | fault.able_with_toxiproxy:
            able = ", ".join(sorted(fault.able | fault.able_with_toxiproxy))
            yield at_fault(index, ("kind",), f"engine {engine} cannot do {fault.kind}; set engines: [{able}]")
    if isinstance(fault, Killing):
        yield from _kill_problems(index, fault)
    elif isinstance(fault, Pause):
        yield from _pause_problems(index, fault)
    elif isinstance(fault, CorruptCheckpoint):
        if isinstance(fault.starts, TimeTrigger) or fault.starts.role != COORDINATOR:
            yield at_fault(index, ("trigger",), "checkpoints are damaged while the coordinator stands at a phase")
    elif isinstance(fault, LinkFault):
        yield from _link_problems(index, fault, known)
    if "ring" in scenario.strategies and SERVER in roles_of(fault):
        yield at_fault(index, (), "a ring has no server; set strategies: [ps]")


def _kill_problems(index: int, fault: Killing) -> Iterator[Problem]:
    start = fault.starts
    if fault.relaunch_at is not None and not is_worker(fault.target):
        yield at_fault(index, ("relaunch_at",), f"{fault.target} is started again at once; relaunch_at is for workers")
    if fault.target == EVERYONE and isinstance(start, TimeTrigger):
        yield at_fault(index, ("trigger",), "everyone dies while the coordinator stands at a phase")
    if isinstance(start, PhaseTrigger):
        stands = COORDINATOR if fault.target == EVERYONE else fault.target
        if start.role != stands:
            yield at_fault(index, ("trigger", "role"), f"{fault.target} dies where {stands} stands, not {start.role}")
        if fault.relaunch_at is not None and fault.relaunch_at <= start.step:
            text = f"{fault.target} cannot be back in step {fault.relaunch_at}: it is killed in step {start.step}"
            yield at_fault(index, ("relaunch_at",), text)


def _pause_problems(index: int, fault: Pause) -> Iterator[Problem]:
    start = fault.starts
    if (fault.return_at is None) == (fault.for_ms is None):
        yield at_fault(index, (), "a pause ends either past the lease (return_at) or after for_ms; give one of them")
    if isinstance(start, TimeTrigger):
        if fault.return_at is not None:
            yield at_fault(index, ("return_at",), "a pause that a clock begins ends by for_ms")
        return
    if start.role != fault.target:
        yield at_fault(index, ("trigger", "role"), f"{fault.target} stops where it stands itself, not {start.role}")
    if start.phase in ("sync", "proved"):
        yield at_fault(index, ("trigger", "phase"), "a worker on its way in is killed, not paused")
    if fault.return_at is not None and fault.return_at <= start.step:
        text = f"{fault.target} cannot be back in step {fault.return_at}: it is stopped in step {start.step}"
        yield at_fault(index, ("return_at",), text)


def _link_problems(index: int, fault: LinkFault, known: frozenset[str]) -> Iterator[Problem]:
    for role in sorted({role for link in fault.links for role in link}):
        if is_worker(role) and role not in known:
            where = "pairs" if fault.pairs is not None else "groups"
            yield at_fault(index, (where,), f"{role} does not exist; the run has {len(known)} workers")
    if isinstance(fault, Cut) and fault.return_at is not None:
        yield from _eviction_problems(index, fault, fault.return_at)
    for path, point in (("trigger", fault.starts), ("until", fault.ends)):
        if isinstance(point, PhaseTrigger) and point.role and is_worker(point.role) and point.role not in known:
            yield at_fault(index, (path, "role"), f"{point.role} does not exist; the run has {len(known)} workers")


def _eviction_problems(index: int, fault: Cut, return_at: int) -> Iterator[Problem]:
    """Cut off past the lease: the outcome is one only where nobody can be in the middle of anything."""
    start = fault.starts
    if not fault.cut_off:
        yield at_fault(index, ("return_at",), "cuts no worker's words off from the coordinator, so none has to return")
    if isinstance(start, TimeTrigger) or start.role != COORDINATOR:
        yield at_fault(index, ("trigger",), "with return_at it begins while the coordinator stands at a phase")
    elif return_at <= start.step:
        text = f"nobody can be back in step {return_at} who is cut off in step {start.step}"
        yield at_fault(index, ("return_at",), text)


# ---------------------------------------------------------------- the whole


def _checkpoint_problems(scenario: Scenario) -> Iterator[Problem]:
    """Whoever needs a checkpoint finds one. The open of a step waits for the checkpoint before it."""
    every = scenario.training.checkpoint_every
    blackouts: dict[PhaseTrigger, int] = {}
    for index, fault in enumerate(scenario.faults):
        if not isinstance(fault, Killing) or fault.target != EVERYONE or not isinstance(fault.starts, PhaseTrigger):
            continue
        step = fault.starts.step
        if any(point.step == step for point in blackouts):
            yield at_fault(index, ("trigger", "step"), f"everyone dies in step {step} already; choose another step")
        blackouts[fault.starts] = index
    for index, fault in enumerate(scenario.faults):
        if not isinstance(fault, CorruptCheckpoint) or not isinstance(fault.starts, PhaseTrigger):
            continue
        if fault.starts not in blackouts:
            yield at_fault(index, ("trigger",), "has no effect unless a kill of everyone stands at the same point")
        there = min(CHECKPOINTS_KEPT, (fault.starts.step - 1) // every + 1)
        if fault.count >= there and fault.how != "remove_pointer":
            text = f"{there} checkpoint{'s' * (there > 1)} will be there; at least one must stay whole"
            yield at_fault(index, ("count",), text)


def _once_only_problems(scenario: Scenario) -> Iterator[Problem]:
    """After a relaunch some points come again (another attempt), but what is durable is not decided twice."""
    seen: dict[PhaseTrigger, int] = {}
    for index, fault in enumerate(scenario.faults):
        start = fault.starts
        if not isinstance(fault, Killing) or not isinstance(start, PhaseTrigger) or start.role != COORDINATOR:
            continue
        if start.phase in ("opened", "tell") and start in seen:
            point = f"{start.phase} of step {start.step}"
            text = f"after fault {seen[start] + 1} the coordinator does not come to {point} again"
            yield at_fault(index, ("trigger",), text)
        seen.setdefault(start, index)


def _settled(fault: AnyFault) -> int:
    """The last step that is not clean on account of this fault."""
    back = returns_at(fault)
    if back is not None:
        return back - 1
    if isinstance(fault, AddWorker):
        return fault.step - 1
    start = fault.starts
    last = start.step if isinstance(start, PhaseTrigger) else 0
    return max(last, fault.ends.step) if fault.ends is not None else last


def _clean_problems(scenario: Scenario) -> Iterator[Problem]:
    """After the last fault is undone, `clean_steps` steps are left."""
    steps = scenario.training.steps
    if scenario.clean_steps > steps:
        yield Problem(("clean_steps",), f"{scenario.clean_steps} clean steps do not fit in a run of {steps}")
        return
    for index, fault in enumerate(scenario.faults):
        back = returns_at(fault)
        name = "relaunch_at" if isinstance(fault, Killing) else "return_at"
        if back is not None and back > steps:
            yield at_fault(index, (name,), f"step {back} is beyond the run, which has {steps} steps")
        elif steps - _settled(fault) < scenario.clean_steps:
            left = steps - _settled(fault)
            text = f"leaves {left} of {scenario.clean_steps} clean steps; begin it earlier or raise training.steps"
            yield at_fault(index, (), text)


def _whole_problems(scenario: Scenario) -> Iterator[Problem]:
    timed = [index for index, fault in enumerate(scenario.faults) if fault.timed]
    links = any(isinstance(fault, LinkFault) for fault in scenario.faults)
    if scenario.fixed and timed:
        yield at_fault(timed[0], (), "follows a clock, so two runs may differ; set fixed: false")
    measured = isinstance(scenario.training, ShardTrainingSetup) and scenario.training.staleness.age == "measured"
    if scenario.fixed and measured:
        yield Problem(("fixed",), "ages are measured, so two runs may differ; set fixed: false")
    if not scenario.fixed and not timed and not links and not measured:
        yield Problem(("fixed",), "no fault follows a clock, so the result is fixed; remove fixed: false")
    if scenario.expect.min_age is not None and not scenario.sharded:
        yield Problem(("expect", "min_age"), "only the boundaries of layer-sharded training have ages")
    if scenario.sharded:
        counts = scheduled_for_shards(scenario.faults)
    else:
        counts = scheduled(scenario.faults, scenario.training.workers)
    expect = scenario.expect
    code = 0 if expect.condition == "finished" else 5
    if expect.exit_code != code:
        text = f"a run that ends by {expect.condition!r} as promised has exit code {code}, not {expect.exit_code}"
        yield Problem(("expect", "exit_code"), text)
    for name, count in counts.items():
        promised = getattr(expect, name)
        if promised is not None and promised != count:
            yield Problem(("expect", name), f"promises {promised}, but the schedule has {count}")
