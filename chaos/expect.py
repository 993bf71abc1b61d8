"""What a scenario promises beside the invariants. Told to the verifier by the driver at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from chaos.fault_kinds.base import EVERYONE, Strict
from chaos.fault_kinds.disks import CorruptCheckpoint
from chaos.fault_kinds.roles import AddWorker, Killing, Straggle
from chaos.faults import AnyFault
from chaos.membership import lives_of, workers_of

Number = Annotated[int, Field(ge=0)]


class Expect(Strict):
    """Promises. Those that follow from the schedule are filled in; a different number there is an error."""

    kills: Number | None = None
    """Faults that killed (FaultActed of kill and power_cut), by the schedule."""
    relaunches: Number | None = None
    """Killed workers that take part again, by the schedule."""
    returns: Number | None = None
    """Workers that take part again after their lease had ended, by the schedule."""
    joins: Number | None = None
    """Workers that are new, by the schedule."""
    stragglers: Number | None = None
    """Stragglers left out of a step, by the schedule."""
    min_generations: Number | None = None
    """The generation reaches at least this number."""
    refused_stale: Number | None = None
    """At least so many messages of an old generation or incarnation are refused."""
    refused_late: Number | None = None
    """At least so many late gradients are refused."""
    rollbacks: Number | None = None
    """Times that the run went back to a checkpoint, by the schedule."""
    damaged_checkpoints: Number | None = None
    """Checkpoints that were found damaged and skipped, by the schedule."""
    min_accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of held-out samples that the final model gets right, at least."""
    min_age: Number | None = None
    """Layer-sharded: the oldest boundary that is used is at least so many ticks old."""
    condition: str = "finished"
    """How the run ends: finished, or the name of what stops it."""
    exit_code: Annotated[int, Field(ge=0, le=130)] = 0
    """Exit code of `gradstorm run`."""


def scheduled(faults: Sequence[AnyFault], workers: int) -> dict[str, int]:
    """The promises that follow from the schedule."""
    counts = {
        "kills": sum(isinstance(fault, Killing) for fault in faults),
        "stragglers": sum(isinstance(fault, Straggle) for fault in faults),
        "rollbacks": sum(isinstance(fault, Killing) and fault.target == EVERYONE for fault in faults),
        "damaged_checkpoints": sum(
            fault.count for fault in faults if isinstance(fault, CorruptCheckpoint) and fault.how != "remove_pointer"
        ),
    }
    return counts | _arrivals(faults, workers)


def scheduled_for_shards(faults: Sequence[AnyFault]) -> dict[str, int]:
    """The same for layer-sharded training, where every shard that was killed is started again."""
    return {"kills": sum(isinstance(fault, Killing) for fault in faults)}


def _arrivals(faults: Sequence[AnyFault], workers: int) -> dict[str, int]:
    """Workers that come in or back and get as far as a step, by how they do."""
    counts = {"relaunches": 0, "returns": 0, "joins": 0}
    for worker in workers_of(faults, workers):
        for life in lives_of(faults, worker, workers):
            if life.begun_by is not None and life.takes_part:
                cause = faults[life.begun_by]
                word = "joins" if isinstance(cause, AddWorker) else "returns"
                counts["relaunches" if isinstance(cause, Killing) else word] += 1
    return counts


def promises(
    expect: Expect, faults: Sequence[AnyFault], workers: int, *, sharded: bool = False
) -> dict[str, str | int | float]:
    """Everything promised, by name: what the schedule implies (where it is not 0) and what the scenario adds."""
    counts = scheduled_for_shards(faults) if sharded else scheduled(faults, workers)
    implied: dict[str, str | int | float] = {name: count for name, count in counts.items() if count}
    return {**implied, **expect.model_dump(exclude_none=True)}
