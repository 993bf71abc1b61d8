"""How a relaunched coordinator of shards comes back from its log; the same way as in `recovery`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services import decision_log
from services.events import Record, SetTimer
from services.records import Admitted, Fact, Recovered, Regrouped, ShardsCommitted, ShardsOpened, ShardsRolledBack
from services.roles.peers import MEMBER, Peer
from services.roles.shard_attempt import ShardAttempt

if TYPE_CHECKING:
    from services.roles.shard_coordinator import ShardCoordinator


def recover(to: ShardCoordinator, facts: tuple[Fact, ...], torn: bool) -> None:
    """Fold the log into a fresh coordinator and let it go on. A torn last line is cut off the log first."""
    members: tuple[tuple[int, int], ...] = ()
    to.stage = "boundary"
    for fact in facts:
        if isinstance(fact, Regrouped):
            members = fact.members
        _take(to, fact)

    def clean() -> None:
        to._out.extend(Record(fact) for fact in facts)
        _announce(to, members)

    if torn:
        to._persist("log repaired", decision_log.begin_plan(facts), clean)
    else:
        clean()


def _announce(to: ShardCoordinator, members: tuple[tuple[int, int], ...]) -> None:
    for shard, incarnation in members:
        to.peers.put(Peer(shard, incarnation, -1, "", MEMBER, to._now, linked=False, kind=to.peers.kind))
        to._out.append(SetTimer(f"reconnect {shard} {incarnation}", to.config.timing.lease_ms))
    undecided = to.stage if to.current is not None else ""
    fact = Recovered(to.launch, to.step, to.generation, undecided)
    to._decide(f"recovery {to.launch}", fact, lambda: to._regroup("coordinator came back", to._resume))


def _take(to: ShardCoordinator, fact: Fact) -> None:
    match fact:
        case Admitted():
            to.incarnations = max(to.incarnations, fact.incarnation)
        case Regrouped():
            to.generation = fact.generation
            to.been_members.update(shard for shard, _ in fact.members)
        case ShardsOpened():
            if to.current is not None and to.current.committed is not None:
                to.step = to.current.committed.step  # opening a step shows that the one before was swapped by all
            to.current, to.stage = ShardAttempt(fact), "run"
            to.attempt = fact.attempt + 1
            to.high_step = max(to.high_step, fact.step)
        case ShardsCommitted():
            to.committed(fact)
        case ShardsRolledBack():
            to.rolled_back(fact)
            to.stage = "boundary"
        case _:
            pass
