"""Bugs of layer-sharded training in who counts as what: incarnations, generations, numbers of steps, batches."""

from __future__ import annotations

from dataclasses import replace

from services.events import Record
from services.messages import CommitShards, Join
from services.records import ShardSwapped
from services.roles.shard import Shard
from services.roles.shard_coordinator import ShardCoordinator
from services.shard_jobs import ShardState, SkipShardJob
from testbed.plants.registry import Patch, memory, plant
from training.shard_snapshot import ShardSnapshot


@plant("shard-incarnation-reused", invariant="fencing", scenario="shards-kill-forward", strategy="shards")
def incarnation_reused() -> list[Patch]:
    """A shard that is started again gets the incarnation that it had."""
    original = ShardCoordinator._admit

    def admit(self: ShardCoordinator, message: Join) -> None:
        given = memory(self).setdefault("given", {})
        highest, number = self.incarnations, message.worker
        if number in given:
            self.incarnations = given[number] - 1
        original(self, message)
        given[number] = self.incarnations
        self.incarnations = max(highest, self.incarnations)

    return [(ShardCoordinator, "_admit", admit)]


@plant("shard-counts-a-step-twice", invariant="step monotonicity", scenario="shards-clean", strategy="shards")
def counted_twice() -> list[Patch]:
    """After the commit of step 3, shard 2 takes itself to stand at step 4."""
    original = Shard._committed

    def committed(self: Shard, message: CommitShards) -> None:
        original(self, message)
        for index, effect in enumerate(self._now_out):
            fact = effect.fact if isinstance(effect, Record) else None
            if isinstance(fact, ShardSwapped) and (fact.shard, fact.step) == (2, 3):
                self._now_out[index] = Record(replace(fact, step=4))

    return [(Shard, "_committed", committed)]


@plant("shard-step-opened-twice", invariant="step monotonicity", scenario="shards-clean", strategy="shards")
def opened_twice() -> list[Patch]:
    """The coordinator goes on from step 3 as if that had been committed as step 2: its number is given out again."""
    open_next = ShardCoordinator._open_next
    shard_open = Shard._open

    def again(self: ShardCoordinator) -> None:
        if self.step == 3 and not memory(self).get("again"):
            memory(self)["again"] = self.step = 2
        open_next(self)

    def anyway(self: Shard, message: object) -> None:
        if not message.evaluate:  # type: ignore[attr-defined]
            self.step = message.step - 1  # type: ignore[attr-defined]
        shard_open(self, message)  # type: ignore[arg-type]

    return [(ShardCoordinator, "_open_next", again), (Shard, "_open", anyway)]


@plant("skipped-without-need", invariant="gradient exactness", scenario="shards-clean", strategy="shards")
def skipped_without_need() -> list[Patch]:
    """Step 3 is opened as one that changes nothing, though everything is finite."""
    original = ShardCoordinator._open

    def needless(self: ShardCoordinator, step: int, evaluate: bool, skip: str = "") -> None:
        original(self, step, evaluate, "shard-2: backward: nothing" if step == 3 and not evaluate else skip)

    return [(ShardCoordinator, "_open", needless)]


@plant("skip-changes-the-moments", invariant="gradient exactness", scenario="shards-overflow", strategy="shards")
def skip_decays() -> list[Patch]:
    """A skipped step still lets the momentum decay."""

    def call(self: SkipShardJob) -> ShardState:
        before = self.snapshot
        moments = replace(before.moments, moments=tuple(0.9 * moment for moment in before.moments.moments))
        return ShardState.of(ShardSnapshot(before.step + 1, before.parameters, moments, self.generator))

    return [(SkipShardJob, "__call__", call)]
