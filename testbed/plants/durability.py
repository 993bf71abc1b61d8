"""Bugs in what is durable before it is told, and in how a checkpoint reaches the disk."""

from __future__ import annotations

from collections.abc import Callable

from services import decision_log, jobs
from services.events import Record
from services.records import Committed, Fact
from services.roles.deciding import Deciding
from testbed.plants.registry import Patch, plant
from training.checkpoint import CheckpointState, write_plan
from training.disk import DiskOp, SyncDir, SyncFile


@plant("told-before-durable", invariant="durability")
def told_before_durable() -> list[Patch]:
    """A commit is told first and written to the log afterwards."""
    original = Deciding._decide

    def decide(self: Deciding, what: str, fact: Fact, then: Callable[[], None]) -> None:
        if not isinstance(fact, Committed):
            original(self, what, fact, then)
            return
        self._out.append(Record(fact))
        self._persist(what, decision_log.append_plan(fact), then)

    return [(Deciding, "_decide", decide)]


@plant("checkpoint-not-synced", invariant="durability")
def checkpoint_not_synced() -> list[Patch]:
    """A checkpoint's files and folder are written and renamed, but never synced."""

    def unsynced(folder: str, state: CheckpointState, incarnation: int) -> tuple[DiskOp, ...]:
        plan = write_plan(folder, state, incarnation)
        return tuple(operation for operation in plan if not isinstance(operation, SyncFile | SyncDir))

    return [(jobs, "write_plan", unsynced)]


@plant("log-not-synced", invariant="durability")
def log_not_synced() -> list[Patch]:
    """The coordinator's log is appended to, but never synced."""
    original = Deciding._persist

    def persist(self: Deciding, what: str, operations: tuple[DiskOp, ...], then: Callable[[], None]) -> None:
        original(self, what, [op for op in operations if not isinstance(op, SyncFile)], then)

    return [(Deciding, "_persist", persist)]
