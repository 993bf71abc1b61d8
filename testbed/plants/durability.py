"""Bugs in what is durable before it is told, and in how a checkpoint reaches the disk."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from services import decision_log, jobs
from services.events import Record
from services.records import Closed, Committed, Fact, Regrouped
from services.roles import coordinator as coordinator_module
from services.roles.coordinator import Coordinator
from services.roles.worker import Worker
from testbed.plants.registry import Patch, plant
from training.checkpoint import CheckpointState, publish_plan, write_plan
from training.disk import DiskOp, MakeDir, Rename, SyncDir, SyncFile, WriteFile

Then = Callable[[], None]


def _told_first(kind: type[Fact]) -> list[Patch]:
    """A decision of this kind is told first and written to the log afterwards."""
    original = Coordinator._decide

    def decide(self: Coordinator, what: str, fact: Fact, then: Then) -> None:
        if not isinstance(fact, kind):
            original(self, what, fact, then)
            return
        self._out.append(Record(fact))
        self._persist(what, decision_log.append_plan(fact), then)

    return [(Coordinator, "_decide", decide)]


@plant("told-before-durable", invariant="durability")
def told_before_durable() -> list[Patch]:
    """A commit is told first and written to the log afterwards."""
    return _told_first(Committed)


@plant("closed-before-durable", invariant="durability")
def closed_before_durable() -> list[Patch]:
    """Contributors are told first and written to the log afterwards."""
    return _told_first(Closed)


@plant("generation-not-persisted", invariant="durability", scenario="kill-at-open")
def generation_not_persisted() -> list[Patch]:
    """A new generation is used without having been written to the log."""
    original = Coordinator._decide

    def decide(self: Coordinator, what: str, fact: Fact, then: Then) -> None:
        if isinstance(fact, Regrouped):
            self._out.append(Record(fact))
            then()
        else:
            original(self, what, fact, then)

    return [(Coordinator, "_decide", decide)]


@plant("commit-not-written", invariant="durability", scenario="kill-coordinator-tell")
def commit_not_written() -> list[Patch]:
    """The log is synced after a commit, but the commit is not in it."""
    original = Coordinator._persist

    def persist(self: Coordinator, what: str, operations: Sequence[DiskOp], then: Then) -> None:
        if what.startswith("commit "):
            operations = [operation for operation in operations if isinstance(operation, SyncFile)]
        original(self, what, operations, then)

    return [(Coordinator, "_persist", persist)]


@plant("log-not-synced", invariant="durability")
def log_not_synced() -> list[Patch]:
    """The coordinator's log is appended to, but never synced."""
    original = Coordinator._persist

    def persist(self: Coordinator, what: str, operations: Sequence[DiskOp], then: Then) -> None:
        original(self, what, [op for op in operations if not isinstance(op, SyncFile)], then)

    return [(Coordinator, "_persist", persist)]


# ---------------------------------------------------------------- checkpoints


def _written(plan: Callable[[Sequence[DiskOp]], Iterable[DiskOp]]) -> list[Patch]:
    """Checkpoints are written by `plan` of what the right operations are."""

    def write(folder: str, state: CheckpointState, incarnation: int) -> tuple[DiskOp, ...]:
        return tuple(plan(write_plan(folder, state, incarnation)))

    return [(jobs, "write_plan", write)]


@plant("checkpoint-not-synced", invariant="durability")
def checkpoint_not_synced() -> list[Patch]:
    """A checkpoint's files and folder are written and renamed, but never synced."""
    return _written(lambda right: [op for op in right if not isinstance(op, SyncFile | SyncDir)])


@plant("checkpoint-not-atomic", invariant="durability")
def checkpoint_not_atomic() -> list[Patch]:
    """A checkpoint is written where it will be read, without a temporary name and a rename."""

    def in_place(right: Sequence[DiskOp]) -> Iterable[DiskOp]:
        (source, target), *_ = [(op.source, op.target) for op in right if isinstance(op, Rename)]
        for op in right:
            match op:
                case MakeDir(path):
                    yield MakeDir(path.replace(source, target))
                case WriteFile(path, content):
                    yield WriteFile(path.replace(source, target), content)
                case SyncFile(path):
                    yield SyncFile(path.replace(source, target))
                case SyncDir(path):
                    yield SyncDir(path.replace(source, target))

    return _written(in_place)


@plant("renamed-before-synced", invariant="durability")
def renamed_before_synced() -> list[Patch]:
    """A checkpoint gets its name first, and its files are synced afterwards."""

    def too_early(right: Sequence[DiskOp]) -> Iterable[DiskOp]:
        (rename,) = [op for op in right if isinstance(op, Rename)]
        late = [op for op in right if isinstance(op, SyncFile)]
        for op in right:
            if not isinstance(op, SyncFile):
                yield op
            if op is rename:
                yield from (SyncFile(sync.path.replace(rename.source, rename.target)) for sync in late)

    return _written(too_early)


@plant("pointer-overwritten", invariant="durability")
def pointer_overwritten() -> list[Patch]:
    """The pointer to the newest checkpoint is written over, not renamed into its place."""

    def in_place(folder: str, name: str) -> tuple[DiskOp, ...]:
        right = publish_plan(folder, name)
        (rename,) = [op for op in right if isinstance(op, Rename)]
        (write,) = [op for op in right if isinstance(op, WriteFile)]
        return (WriteFile(rename.target, write.content), SyncFile(rename.target), SyncDir(folder))

    return [(coordinator_module, "publish_plan", in_place)]


@plant("saved-before-durable", invariant="durability")
def saved_before_durable() -> list[Patch]:
    """A member says that its checkpoint is durable, and it is published, while it is still being written."""
    encoded, persisted = Worker._encoded, Worker._persisted

    def at_once(self: Worker, operations: object, generation: int, step: int) -> None:
        before = len(self._now_out)
        encoded(self, operations, generation, step)
        for effect in list(self._now_out[before:]):
            persisted(self, getattr(effect, "token", ""), "")

    def again(self: Worker, token: str, error_name: str) -> None:
        """It was told already."""

    return [(Worker, "_encoded", at_once), (Worker, "_persisted", again)]
