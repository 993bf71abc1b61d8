"""Bugs of layer-sharded training in which state stands, where it is kept, and what is told of it when."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from typing import Any

from services import decision_log, shard_jobs
from services.events import Record
from services.messages import AdoptShard, CommitShards, Evaluated, Message, Prepared, ProvedShard
from services.records import Fact, ShardsCommitted, ShardsOpened
from services.roles.peers import Peer
from services.roles.shard import Shard
from services.roles.shard_coordinator import ShardCoordinator
from services.roles.shard_work import ShardWork
from services.shard_jobs import LoadShardJob, ShardState
from testbed.plants.registry import Patch, memory, plant
from training.disk import Disk, DiskOp, Rename, SyncDir, SyncFile, WriteFile
from training.shard_snapshot import ShardSnapshot, decode, file_name, folder_of, write_plan
from training.transformer.sharding import ShardSpec

Then = Callable[[], None]


@plant("one-shard-stays-behind", invariant="consistent cut", scenario="shards-clean", strategy="shards")
def one_stays_behind() -> list[Patch]:
    """From step 3 on shard 2 says that it stands at the committed step, with the parameters of the step before."""
    original = Shard._committed

    def committed(self: Shard, message: CommitShards) -> None:
        work = self._work
        if self.number == 2 and message.step >= 3 and work is not None and work.shadow is not None:
            work.shadow = self.state
        original(self, message)

    return [(Shard, "_committed", committed)]


@plant("one-shard-rolled-back-alone", invariant="consistent cut", scenario="shards-rollback", strategy="shards")
def rolled_back_alone() -> list[Patch]:
    """Without a file of the committed step, the shard that came back goes on from an older one by itself."""
    adopt, proved = ShardCoordinator._adopt, ShardCoordinator._proved

    def older(self: ShardCoordinator) -> int:
        return max(step for step, files in self.files.items() if step == 0 or all(f[0] for f in files.values()))

    def nobody_else(self: ShardCoordinator, then: Then) -> None:
        del self
        then()

    def adopt_older(self: ShardCoordinator, peer: Peer) -> None:
        step = older(self)
        if step == self.step:
            adopt(self, peer)
            return
        self._send(peer.name, AdoptShard(self.generation, step, *self.files[step][peer.worker]))

    def let_in(self: ShardCoordinator, peer: Peer, message: Message) -> bool:
        if isinstance(message, ProvedShard) and message.step != self.step:
            held = self.files[self.step][peer.worker]
            proved(self, peer, replace(message, step=self.step, parameters_digest=held[1], moments_digest=held[2]))
            return True
        return bool(joiner(self, peer, message))

    joiner = ShardCoordinator._joiner_message
    original_open = Shard._open

    def open_anyway(self: Shard, message: Any) -> None:
        self.step = message.step if message.evaluate else message.step - 1
        original_open(self, message)

    return [
        (ShardCoordinator, "_with_state", nobody_else), (ShardCoordinator, "_adopt", adopt_older),
        (ShardCoordinator, "_joiner_message", let_in), (Shard, "_open", open_anyway),
    ]  # fmt: skip


def _unproved() -> list[Patch]:
    """Whatever state a shard comes back with is taken for the right one."""
    adopted, answer = Shard._adopted, ShardCoordinator._proved

    def believe(self: Shard, state: ShardState) -> None:
        assert self._adopting is not None
        self._adopting = replace(self._adopting, parameters_digest="", moments_digest="")
        adopted(self, state)

    def accept(self: ShardCoordinator, peer: Peer, message: ProvedShard) -> None:
        _, *digests = self.files.get(self.step, {}).get(peer.worker, ("", "", ""))
        if digests[0]:
            message = replace(message, parameters_digest=digests[0], moments_digest=digests[1])
        answer(self, peer, message)

    return [(Shard, "_adopted", believe), (ShardCoordinator, "_proved", accept)]


@plant("older-file-loaded", invariant="checkpoint fidelity", scenario="shards-kill-commit", strategy="shards")
def older_file() -> list[Patch]:
    """A shard that comes back loads the oldest file in its folder, and nobody compares its state."""

    def load(self: LoadShardJob, disk: Disk) -> ShardState:
        folder = folder_of(self.spec.index + 1)
        oldest = min(name for name in disk.list(folder) if name.endswith(".shard"))
        path = f"{folder}/{oldest}"
        return ShardState.of(decode(path, disk.read(path), self.spec))

    return [(LoadShardJob, "__call__", load), *_unproved()]


@plant("file-of-an-old-attempt", invariant="checkpoint fidelity", scenario="shards-stray", strategy="shards")
def old_attempt() -> list[Patch]:
    """A shard that comes back is given the stray file of the first attempt, which no decision names."""
    original = ShardCoordinator._adopt

    def adopt(self: ShardCoordinator, peer: Peer) -> None:
        held = self.files.get(self.step, {}).get(peer.worker)
        if self.step == 3 and peer.worker == 2 and held:
            stray = file_name(2, 3, 1, 0)
            self._send(peer.name, AdoptShard(self.generation, self.step, stray, *held[1:]))
        else:
            original(self, peer)

    return [(ShardCoordinator, "_adopt", adopt)]


@plant("step-count-not-restored", invariant="gradient exactness", scenario="shards-kill-commit", strategy="shards")
def step_count_lost() -> list[Patch]:
    """A shard that comes back starts AdamW's count of updates at 0 again."""
    original = Shard._adopted

    def adopted(self: Shard, state: ShardState) -> None:
        original(self, state)
        if self.state is not None:
            snapshot = self.state.snapshot
            forgotten = replace(snapshot, moments=replace(snapshot.moments, step_count=0))
            self.state = replace(self.state, snapshot=forgotten)

    return [(Shard, "_adopted", adopted)]


@plant("moments-not-restored", invariant="gradient exactness", scenario="shards-kill-commit", strategy="shards")
def moments_lost() -> list[Patch]:
    """A shard that comes back starts with moments of zeros."""
    original = Shard._adopted

    def adopted(self: Shard, state: ShardState) -> None:
        original(self, state)
        if self.state is not None:
            moments = self.state.snapshot.moments
            zeros = replace(moments, moments=tuple(0.0 * moment for moment in moments.moments))
            self.state = replace(self.state, snapshot=replace(self.state.snapshot, moments=zeros))

    return [(Shard, "_adopted", adopted)]


@plant("decided-without-one", invariant="consistent cut", scenario="shards-clean", strategy="shards")
def decided_without_one() -> list[Patch]:
    """A step is decided when all shards but one are prepared."""
    prepared = ShardCoordinator._prepared

    def early(self: ShardCoordinator, peer: Peer, message: Prepared) -> None:
        now, last = self.current, self.config.workers
        prepared(self, peer, message)
        if now is None or now is not self.current or self.stage != "run" or now.opened.step < 3:
            return
        if len(now.prepared) == last - 1 and last in now.prepared:
            self._commit(now)

    original = ShardCoordinator._commit

    def commit(self: ShardCoordinator, now: Any) -> None:
        said = now.prepared
        if len(said) == self.config.workers:
            original(self, now)
            return
        rows = tuple(
            (p.worker, p.incarnation, *_told(said[p.worker])) for p in self.peers.members() if p.worker in said
        )
        fact = ShardsCommitted(now.opened.step, self.generation, now.opened.attempt, rows, 0.0)

        def durable() -> None:
            self.committed(fact)
            for peer in self.peers.members():
                self._ask(peer)

        self._decide(f"commit {fact.step}.{fact.attempt}", fact, durable)

    return [(ShardCoordinator, "_prepared", early), (ShardCoordinator, "_commit", commit)]


def _told(said: Prepared) -> tuple[str, str, str]:
    return said.file, said.parameters_digest, said.moments_digest


@plant("evaluated-from-memory", invariant="gradient exactness", scenario="shards-clean", strategy="shards")
def old_evaluation() -> list[Patch]:
    """The last shard answers every evaluation with the loss of the first one."""
    original = Shard._answer

    def answer(self: Shard, message: Message) -> None:
        if isinstance(message, Evaluated):
            message = replace(message, loss=memory(self).setdefault("loss", message.loss))
        original(self, message)

    return [(Shard, "_answer", answer)]


# ---------------------------------------------------------------- durability


def _told_first(kind: type[Fact]) -> list[Patch]:
    """A decision of this kind is told first and written to the log afterwards."""
    original = ShardCoordinator._decide

    def decide(self: ShardCoordinator, what: str, fact: Fact, then: Then) -> None:
        if not isinstance(fact, kind):
            original(self, what, fact, then)
            return
        self._out.append(Record(fact))
        self._persist(what, decision_log.append_plan(fact), then)

    return [(ShardCoordinator, "_decide", decide)]


@plant("shard-commit-told-before-durable", invariant="durability", scenario="shards-clean", strategy="shards")
def commit_told_first() -> list[Patch]:
    """A commit is told first and written to the log afterwards."""
    return _told_first(ShardsCommitted)


@plant("attempt-told-before-durable", invariant="durability", scenario="shards-clean", strategy="shards")
def open_told_first() -> list[Patch]:
    """An attempt is told first and written to the log afterwards."""
    return _told_first(ShardsOpened)


def _written(plan: Callable[[Sequence[DiskOp]], Iterable[DiskOp]]) -> list[Patch]:
    """Prepared files are written by `plan` of what the right operations are."""

    def write(path: str, spec: ShardSpec, snapshot: ShardSnapshot) -> tuple[DiskOp, ...]:
        return tuple(plan(write_plan(path, spec, snapshot)))

    return [(shard_jobs, "snapshot_plan", write)]


@plant("prepared-not-synced", invariant="durability", scenario="shards-clean", strategy="shards")
def prepared_not_synced() -> list[Patch]:
    """A prepared file is written and renamed, but neither it nor its folder is synced."""
    return _written(lambda right: [op for op in right if not isinstance(op, SyncFile | SyncDir)])


@plant("prepared-not-atomic", invariant="durability", scenario="shards-clean", strategy="shards")
def prepared_not_atomic() -> list[Patch]:
    """A prepared file is written where it will be read, without a temporary name and a rename."""

    def in_place(right: Sequence[DiskOp]) -> Iterable[DiskOp]:
        (target,) = [op.target for op in right if isinstance(op, Rename)]
        for op in right:
            match op:
                case WriteFile(_, content):
                    yield WriteFile(target, content)
                case SyncFile(_):
                    yield SyncFile(target)
                case Rename():
                    pass
                case _:
                    yield op

    return _written(in_place)


@plant("prepared-told-before-durable", invariant="durability", scenario="shards-clean", strategy="shards")
def prepared_told_first() -> list[Patch]:
    """A shard says that it is prepared while its file is still being written."""
    encoded, persisted = Shard._encoded, Shard._persisted

    def at_once(self: Shard, work: ShardWork, operations: object) -> None:
        encoded(self, work, operations)
        persisted(self, f"prepared {work.file}", "")

    def again(self: Shard, token: str, error_name: str) -> None:
        """It was told already."""

    return [(Shard, "_encoded", at_once), (Shard, "_persisted", again)]
