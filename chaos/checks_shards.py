"""Does a schedule make sense for layer-sharded training? Which roles there are, and which phases each comes to."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from chaos.fault_kinds.base import PhaseTrigger, TimeTrigger, is_shard, is_worker
from chaos.fault_kinds.disks import CorruptCheckpoint
from chaos.fault_kinds.links import LinkFault
from chaos.fault_kinds.roles import AddWorker, Killing, Pause, Straggle
from chaos.faults import AnyFault
from chaos.problem import Problem, at_fault
from chaos.shard_setup import ShardTrainingSetup
from services.any_config import SHARDS
from services.events import SERVER

if TYPE_CHECKING:
    from chaos.scenario import Scenario

_WORKERS_ALONE = (AddWorker, CorruptCheckpoint, Pause, Straggle)


def strategy_problems(scenario: Scenario) -> Iterator[Problem]:
    """Training and strategies belong together."""
    if scenario.sharded and list(scenario.strategies) != [SHARDS]:
        yield Problem(
            ("strategies",), "training of kind shards has one strategy; set strategies: [shards], or leave it out"
        )
    elif not scenario.sharded and SHARDS in scenario.strategies:
        yield Problem(("strategies",), "strategy shards needs training of kind shards")


def roles_of(fault: AnyFault) -> set[str]:
    """Every role that a fault names."""
    roles = {role for link in fault.links for role in link} if isinstance(fault, LinkFault) else set()
    points = (fault.starts, fault.ends)
    roles |= {point.role for point in points if isinstance(point, PhaseTrigger) and point.role}
    return roles | {getattr(fault, "target", "")}


def role_problems(scenario: Scenario, index: int, fault: AnyFault) -> Iterator[Problem]:
    """Shards belong to layer-sharded training, workers and servers do not."""
    training, roles = scenario.training, roles_of(fault)
    if not isinstance(training, ShardTrainingSetup):
        for role in sorted(filter(is_shard, roles)):
            yield at_fault(index, (), f"{role}: data-parallel training has workers, no shards")
        return
    if isinstance(fault, _WORKERS_ALONE):
        yield at_fault(index, ("kind",), f"layer-sharded training cannot have {fault.kind}: it is about workers")
        return
    for role in sorted(roles):
        if is_worker(role) or role == SERVER:
            yield at_fault(index, (), f"{role}: layer-sharded training has shards, no workers and no server")
        elif is_shard(role) and int(role.removeprefix("shard-")) > training.workers:
            yield at_fault(index, (), f"{role} does not exist; the run has {training.workers} shards")


def point_problems(
    training: ShardTrainingSetup, index: int, path: tuple[str, ...], point: PhaseTrigger
) -> Iterator[Problem]:
    """A known phase of a shard is one that this very shard comes to."""
    role, phase = point.role or "", point.phase
    if phase == "evaluate" and not training.evaluates_at(point.step):
        text = (
            f"nothing is evaluated after step {point.step}; it is every {training.evaluate_every} steps and at the end"
        )
        yield at_fault(index, (*path, "step"), text)
    if phase == "forward" and role == f"shard-{training.workers}":
        yield at_fault(index, (*path, "phase"), f"{role} is the last one: it hands nothing forward")
    if phase == "backward" and role == "shard-1":
        yield at_fault(index, (*path, "phase"), f"{role} is the first one: it hands nothing backward")
    if point.chunk and phase not in ("forward", "backward"):
        yield at_fault(index, (*path, "chunk"), f"only forward and backward have micro-batches, {phase} has none")
    elif point.chunk >= training.micro_batches:
        text = f"micro-batch {point.chunk} does not exist; there are {training.micro_batches}, counted from 0"
        yield at_fault(index, (*path, "chunk"), text)


def once_only_problems(scenario: Scenario) -> Iterator[Problem]:
    """A shard that died at a point may come to it again in the next attempt, but not to one after the commit."""
    seen: dict[PhaseTrigger, int] = {}
    for index, fault in enumerate(scenario.faults):
        start = fault.starts
        if not isinstance(fault, Killing) or isinstance(start, TimeTrigger) or not is_shard(start.role or ""):
            continue
        if start in seen and start.phase in ("commit", "committed"):
            text = (
                f"after fault {seen[start] + 1} {start.role} does not come to {start.phase} of step {start.step} again"
            )
            yield at_fault(index, ("trigger",), text)
        seen.setdefault(start, index)
