"""Who may tell which fact. A role's word about another, or about what only the coordinator decides, is no evidence."""

from __future__ import annotations

from services.lineage import COORDINATOR
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

_WORKER, _SHARD, _ANYBODY = "the worker named in it", "the shard named in it", "anybody"
_TELLERS: dict[type, str] = {
    CheckpointWritten: _WORKER,
    Contributed: _WORKER,
    Reduced: _WORKER,
    StateApplied: _WORKER,
    BoundarySent: _SHARD,
    BoundaryUsed: _SHARD,
    ShardLoaded: _SHARD,
    ShardPrepared: _SHARD,
    ShardSwapped: _SHARD,
    Stale: _SHARD,
    Durable: _ANYBODY,
    Refused: _ANYBODY,
    Summed: _ANYBODY,
    Ended: "verifier",
    Expectation: "driver",
    FaultActed: "driver",
    FaultArmed: "driver",
    FaultMissed: "driver",
    FaultUndone: "driver",
    Healed: "driver",
}


def may_tell(source: str, fact: Fact) -> bool:
    """Whether `source` is the role that this fact is told by. What is not listed is the coordinator's to tell."""
    teller = _TELLERS.get(type(fact), COORDINATOR)
    if teller == _WORKER:
        return source == f"worker-{fact.worker}"  # type: ignore[union-attr]
    if teller == _SHARD:
        own = source == f"shard-{fact.shard}"  # type: ignore[union-attr]
        return own or (isinstance(fact, Stale) and source == COORDINATOR)
    if teller == _ANYBODY:
        return not isinstance(fact, Summed) or fact.role == source
    return source == teller
