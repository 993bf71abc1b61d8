"""The named points of a step: where each role stands, who waits for it there, and what a death there does and why.

This is the table of the protocol as data. Scenarios are checked against it, and ARCHITECTURE.md prints it
(`markdown_table`). A phase stands before a message that the coordinator cannot pass without, and none stands after a
send, so a death there has one outcome whatever wins a race, in ring and server alike.

Steps: a worker's, coordinator's and server's phase carries the step under way; a joiner's carries the step that it
would first take part in; the verifier's carries the newest committed step among the records at hand.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from services.events import COORDINATOR, SERVER, VERIFIER

WORKER, JOINER = "worker", "joiner"  # kinds of role; a joiner is a worker on its way in
SHARD, SHARD_COORDINATOR = "shard", "coordinator of shards"


@dataclass(frozen=True, slots=True)
class PhaseInfo:
    """One row of the table. `awaited_by` is the message that the coordinator waits for while the role stands here."""

    kind: str  # worker | joiner | coordinator | server | verifier | shard | coordinator of shards
    name: str
    stands: str
    awaited_by: str
    death: str
    why: str


_RETRIED = "survivors drop their shadow state and stand at t - 1; relaunch from the committed file, attempt + 1"
_STANDS = "step t stands: the relaunched shard loads the prepared file that the decision names"

SHARD_PHASES: tuple[PhaseInfo, ...] = (
    PhaseInfo(
        SHARD,
        "open",
        "`open` received, not yet computing",
        "prepared",
        _RETRIED,
        "a commit needs `prepared` from every shard, so nothing of this attempt can have been decided",
    ),
    PhaseInfo(
        SHARD,
        "forward",
        "output of a micro-batch computed, boundary unsent (chunk m: of micro-batch m)",
        "prepared",
        _RETRIED,
        "the boundary exists nowhere else; the next attempt draws the same batch and the same delays",
    ),
    PhaseInfo(
        SHARD,
        "backward",
        "gradient of a micro-batch computed, boundary unsent (chunk m: of micro-batch m)",
        "prepared",
        _RETRIED,
        "as at forward",
    ),
    PhaseInfo(
        SHARD,
        "prepare",
        "shadow state computed, nothing written",
        "prepared",
        _RETRIED,
        "the shadow state was in memory alone",
    ),
    PhaseInfo(
        SHARD,
        "prepared",
        "file (t, generation, attempt) durable, `prepared` unsent",
        "prepared",
        f"{_RETRIED}; the stray file is ignored",
        "a file counts only when a decision names it, and names carry generation and attempt",
    ),
    PhaseInfo(
        SHARD,
        "commit",
        "`commit` received, not swapped",
        "committed",
        _STANDS,
        "the decision was durable before it was told, and the file before the decision",
    ),
    PhaseInfo(
        SHARD,
        "committed",
        "swapped, `committed` unsent",
        "committed",
        _STANDS,
        "as at commit: t + 1 opens after every shard's `committed`",
    ),
    PhaseInfo(
        SHARD,
        "evaluate",
        "asked to evaluate step t, not yet computing",
        "evaluated",
        "relaunch from the committed file; the evaluation is made again",
        "an evaluation changes nothing",
    ),
    PhaseInfo(
        SHARD_COORDINATOR,
        "opened",
        "attempt of step t open, durably; `open` unsent",
        "itself",
        "after the relaunch another attempt of the same step",
        "nobody has been told; the batch follows from the seed and the step",
    ),
    PhaseInfo(
        SHARD_COORDINATOR,
        "decide",
        "`prepared` of every shard received, commit not persisted",
        "itself",
        "the attempt is abandoned; after the relaunch attempt + 1",
        "nothing of the decision is on disk, so nothing of it was told; the prepared files are strays",
    ),
    PhaseInfo(
        SHARD_COORDINATOR,
        "tell",
        "commit persisted, nothing sent",
        "itself",
        "step t stands; after the relaunch the commit is read and told",
        "the decision is durable, and it names files that are",
    ),
)

PHASES: tuple[PhaseInfo, ...] = (
    PhaseInfo(
        WORKER,
        "open",
        "`open` received, not yet computing",
        "offer",
        "it is out of step t",
        "the step cannot close before it has offered, died or passed the deadline, and it never offers",
    ),
    PhaseInfo(
        WORKER,
        "offer",
        "gradient held, `offer` unsent",
        "offer",
        "it is out of step t",
        "nobody else holds its gradient; its samples stay uncommitted and are dealt again",
    ),
    PhaseInfo(
        WORKER,
        "reduce",
        "`close` received, own value unsent (chunk c: its first c chunks are sent)",
        "ready",
        "attempt + 1 without it, the survivors' same gradients, a new N",
        "a commit needs `ready` from every contributor, so no attempt that counts on it can have been decided",
    ),
    PhaseInfo(
        WORKER,
        "ready",
        "whole finished value held and passed on, `ready` unsent",
        "ready",
        "attempt + 1 without it, the survivors' same gradients, a new N",
        "others may hold the value, yet nothing is decided without its `ready`",
    ),
    PhaseInfo(
        WORKER,
        "apply",
        "`commit` received, not applied",
        "applied",
        "step t stands; it is not dealt in t + 1",
        "the decision was durable before it was told; t + 1 opens after its `applied` or its death",
    ),
    PhaseInfo(
        WORKER,
        "applied",
        "applied, records acknowledged, `applied` unsent",
        "applied",
        "step t stands; it is not dealt in t + 1",
        "as at apply: t + 1 opens after its `applied` or its death",
    ),
    PhaseInfo(
        JOINER,
        "sync",
        "told which state to adopt, nothing fetched",
        "proved",
        "the step opens without it",
        "it is no member before its proof, and the open waits for the proof or the death",
    ),
    PhaseInfo(
        JOINER,
        "proved",
        "state fetched and hashed, `proved` unsent",
        "proved",
        "the step opens without it",
        "as at sync: what it holds was never told to anybody",
    ),
    PhaseInfo(
        COORDINATOR,
        "opened",
        "step t open, durably; `open` unsent",
        "itself",
        "step t stays open with the same deals; after the relaunch they are told",
        "the deals are on disk and nobody has seen them",
    ),
    PhaseInfo(
        COORDINATOR,
        "closed",
        "contributors and N closed, durably; `close` unsent",
        "itself",
        "after the relaunch another attempt of the same contributors, with the same gradients",
        "the contributors are on disk; each still holds its gradient and offers it again",
    ),
    PhaseInfo(
        COORDINATOR,
        "decide",
        "`ready` of every contributor received, commit not persisted",
        "itself",
        "the attempt is abandoned; after the relaunch attempt + 1 of the same contributors",
        "nothing of the decision is on disk, so nothing of it was told",
    ),
    PhaseInfo(
        COORDINATOR,
        "tell",
        "commit persisted, nothing sent",
        "itself",
        "step t stands; after the relaunch the commit is read and told",
        "the decision is durable; members hold the value and ask again under the new generation",
    ),
    PhaseInfo(
        SERVER,
        "gathering",
        "`close` received, nothing summed",
        "ready",
        "relaunch, attempt + 1 of the same contributors",
        "the server holds nothing authoritative: every gradient is still with its contributor",
    ),
    PhaseInfo(
        SERVER,
        "publishing",
        "the sum is made, nothing published",
        "ready",
        "relaunch, attempt + 1 of the same contributors",
        "nobody can be ready, so nothing is decided; the same order gives the same bits again",
    ),
    PhaseInfo(
        VERIFIER,
        "unstored",
        "records received, not on disk",
        "stored (by the reporting role)",
        "nothing; the roles send again what was not acknowledged",
        "roles keep every record until it is stored; training does not wait for the verifier",
    ),
    PhaseInfo(
        VERIFIER,
        "stored",
        "records on disk, acknowledgement unsent",
        "stored (by the reporting role)",
        "nothing; records come again and are recognised by their numbers",
        "a record is numbered per role and launch, so a repeated one is the same one",
    ),
    *SHARD_PHASES,
)


def kinds_of(role: str, sharded: bool = False) -> tuple[str, ...]:
    """Kinds of phase that a role of this name can stand at, in data-parallel or layer-sharded training."""
    if role.startswith("worker-"):
        return () if sharded else (WORKER, JOINER)
    if role.startswith("shard-"):
        return (SHARD,) if sharded else ()
    return (SHARD_COORDINATOR,) if sharded and role == COORDINATOR else (role,)


def phases_of(role: str, sharded: bool = False) -> tuple[PhaseInfo, ...]:
    """The phases of a role of this name, in the order of a step."""
    kinds = kinds_of(role, sharded)
    return tuple(phase for phase in PHASES if phase.kind in kinds)


def find_phase(role: str, name: str, sharded: bool = False) -> PhaseInfo | None:
    """The phase of that name of a role of that name, or None."""
    return next((phase for phase in phases_of(role, sharded) if phase.name == name), None)


def phase_order(role: str, name: str) -> int:
    """Position within a step, for sorting. A joiner's phases come before the step opens. ValueError when unknown."""
    names = [phase.name for phase in phases_of(role)]
    if name in ("sync", "proved"):
        return names.index(name) - len(names)
    return names.index(name)


def markdown_table(phases: Sequence[PhaseInfo] = PHASES) -> str:
    """The table as ARCHITECTURE.md shows it."""
    lines = [
        "| role | phase | it stands | awaited | a death here | why |",
        "|---|---|---|---|---|---|",
    ]
    lines += [
        f"| {phase.kind} | {phase.name} | {phase.stands} | {phase.awaited_by} | {phase.death} | {phase.why} |"
        for phase in phases
    ]
    return "\n".join(lines) + "\n"
