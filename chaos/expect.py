"""What a scenario promises beside the invariants. Told to the verifier by the driver at the start."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

from pydantic import Field

from chaos.fault_kinds.base import Strict
from chaos.fault_kinds.roles import AddWorker, Killing, Pause, Straggle
from chaos.faults import AnyFault

Number = Annotated[int, Field(ge=0)]


class Expect(Strict):
    """Promises. Those that follow from the schedule are filled in; a different number there is an error."""

    kills: Number | None = None
    """Faults that killed (FaultActed of kill and power_cut), by the schedule."""
    relaunches: Number | None = None
    """Killed workers that take part again, by the schedule."""
    returns: Number | None = None
    """Paused workers that take part again after their lease, by the schedule."""
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
    """Times that the run went back to a checkpoint."""
    damaged_checkpoints: Number | None = None
    """Checkpoints that were found damaged and skipped."""
    min_accuracy: Annotated[float, Field(ge=0, le=1)] | None = None
    """Share of held-out samples that the final model gets right, at least."""
    condition: str = "finished"
    """How the run ends: finished, or the name of what stops it."""
    exit_code: Annotated[int, Field(ge=0, le=130)] = 0
    """Exit code of `gradstorm run`."""


def scheduled(faults: Sequence[AnyFault]) -> dict[str, int]:
    """The promises that follow from the schedule."""
    return {
        "kills": sum(isinstance(fault, Killing) for fault in faults),
        "relaunches": sum(isinstance(fault, Killing) and fault.relaunch_at is not None for fault in faults),
        "returns": sum(isinstance(fault, Pause) and fault.return_at is not None for fault in faults),
        "joins": sum(isinstance(fault, AddWorker) for fault in faults),
        "stragglers": sum(isinstance(fault, Straggle) for fault in faults),
    }


def promises(expect: Expect, faults: Sequence[AnyFault]) -> dict[str, str | int | float]:
    """Everything promised, by name: what the schedule implies (where it is not 0) and what the scenario adds."""
    implied: dict[str, str | int | float] = {name: count for name, count in scheduled(faults).items() if count}
    return {**implied, **expect.model_dump(exclude_none=True)}
