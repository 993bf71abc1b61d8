"""Who may tell which fact. A role's word about another, or about what only the coordinator decides, is no evidence."""

from __future__ import annotations

from services.lineage import COORDINATOR, worker_role
from services.records import (
    BoundarySent,
    BoundaryUsed,
    CheckpointWritten,
    Contributed,
    Durable,
    Ended,
    Expectation,
    Fact,
    FaultActed,
    FaultArmed,
    FaultMissed,
    FaultUndone,
    Healed,
    Reduced,
    Refused,
    ShardLoaded,
    ShardPrepared,
    ShardSwapped,
    Stale,
    StateApplied,
    Summed,
)

_OF_A_WORKER = (CheckpointWritten, Contributed, Reduced, StateApplied)
_OF_A_SHARD = (BoundarySent, BoundaryUsed, ShardLoaded, ShardPrepared, ShardSwapped, Stale)
_OF_ONE_ROLE: dict[type, str] = {
    Ended: "verifier",
    Expectation: "driver",
    FaultActed: "driver",
    FaultArmed: "driver",
    FaultMissed: "driver",
    FaultUndone: "driver",
    Healed: "driver",
}
_OF_ANYBODY = (Durable, Refused, Summed)


def may_tell(source: str, fact: Fact) -> bool:
    """Whether `source` is the role that this fact is told by."""
    if isinstance(fact, _OF_A_WORKER):
        return source == worker_role(fact.worker)
    if isinstance(fact, _OF_A_SHARD):
        return source == f"shard-{fact.shard}" or (isinstance(fact, Stale) and source == COORDINATOR)
    if isinstance(fact, _OF_ANYBODY):
        return not isinstance(fact, Summed) or fact.role == source
    return source == _OF_ONE_ROLE.get(type(fact), COORDINATOR)
