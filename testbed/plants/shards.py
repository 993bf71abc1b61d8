"""Bugs of layer-sharded training in what crosses a cut and in what is made of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from services import shard_jobs
from services.messages import Array, Boundary
from services.records import BoundarySent, BoundaryUsed
from services.roles import shard_links
from services.roles.shard import Shard
from services.roles.shard_work import ShardWork
from services.shard_jobs import Arrived
from testbed.plants.registry import Patch, memory, plant
from training.adamw import AdamWConfig
from training.boundary_codec import codec
from training.boundary_codec.packing import pack, unpack
from training.optimizers import OptimizerSettings, OptimizerState, update
from training.tokens import draw_batch
from training.transformer.step import add_micro_batch

FROM_STEP = 3


def _used_payload(other: Any) -> list[Patch]:
    """A shard uses the payload that `other(self, boundary)` names, or the right one where that is None."""
    original = Shard._accept

    def accept(self: Shard, work: ShardWork, source: str, boundary: Boundary, transit_ms: float) -> None:
        payload = other(self, boundary)
        original(self, work, source, boundary if payload is None else replace(boundary, payload=payload), transit_ms)

    return [(Shard, "_accept", accept)]


@plant("stale-activation", invariant="boundary fidelity", scenario="shards-clean", strategy="shards")
def stale_activation() -> list[Patch]:
    """From step 3 on a shard computes with the boundary that it got for the step before."""

    def earlier(self: Shard, boundary: Boundary) -> bytes | None:
        place = f"{boundary.direction} {boundary.micro_batch}"
        before: bytes | None = memory(self).get(place)
        memory(self)[place] = boundary.payload
        return before if boundary.step >= FROM_STEP and boundary.direction == "forward" else None

    return _used_payload(earlier)


@plant("boundary-of-another-micro-batch", invariant="boundary fidelity", scenario="shards-clean", strategy="shards")
def other_micro_batch() -> list[Patch]:
    """A shard computes micro-batch 1 with the boundary of micro-batch 0."""

    def first(self: Shard, boundary: Boundary) -> bytes | None:
        place = f"{boundary.step} {boundary.direction}"
        if boundary.micro_batch == 0:
            memory(self)[place] = boundary.payload
            return None
        first: bytes | None = memory(self).pop(place, None)
        return first

    return _used_payload(first)


@plant("version-reused", invariant="boundary versions", scenario="shards-clean", strategy="shards")
def version_reused() -> list[Patch]:
    """A shard uses version 0 of a forward boundary for micro-batch 1 as well, and never version 1."""
    original = Shard._use

    def use(self: Shard, work: ShardWork, direction: str, micro_batch: int) -> Arrived:
        if direction == "forward" and micro_batch == 1:
            del work.arrived[direction, 1]
            work.arrived[direction, 0] = memory(self)["first"]
            return original(self, work, direction, 0)
        memory(self)["first"] = work.arrived[direction, micro_batch]
        return original(self, work, direction, micro_batch)

    return [(Shard, "_use", use)]


@plant("bound-ignored", invariant="boundary versions", scenario="shards-stale", strategy="shards")
def bound_ignored() -> list[Patch]:
    """A boundary older than max_staleness is used like any other."""

    def stale(self: Shard, boundary: Boundary) -> None:
        assert self._work is not None
        self._work.keep(boundary, 0.0)

    return [(Shard, "_stale", stale)]


@plant("delay-not-drawn", invariant="boundary versions", scenario="shards-jitter-reorder", strategy="shards")
def delay_not_drawn() -> list[Patch]:
    """Every boundary is given the base delay, whatever the seed says."""

    def ticks(self: Shard, work: ShardWork, direction: str, micro_batch: int, cut: int) -> int:
        return self.config.staleness.delay.base_ticks if direction != "evaluate" else 0

    return [(Shard, "_delay_ticks", ticks)]


@plant("late-boundary-counted-as-fresh", invariant="boundary versions", scenario="shards-measured", strategy="shards")
def counted_as_fresh() -> list[Patch]:
    """Nobody looks at how long a boundary took, although ages are to be measured."""

    def aged(self: Shard, boundary: Boundary, transit_ms: float) -> Boundary:
        return boundary

    return [(Shard, "_aged", aged)]


@plant("decay-applied-twice", invariant="gradient exactness", scenario="shards-decay", strategy="shards")
def decay_twice() -> list[Patch]:
    """A boundary is scaled by its weight, and once more."""
    original = Arrived.values

    def values(self: Arrived) -> Array:
        return self.weight * original(self)

    return [(Arrived, "values", values)]


@plant("decay-of-one-direction", invariant="boundary fidelity", scenario="shards-decay", strategy="shards")
def decay_one_direction() -> list[Patch]:
    """Activations are scaled by their age, gradients are not."""
    original = Shard._weight

    def weight(self: Shard, boundary: Boundary) -> float:
        return 1.0 if boundary.direction == "backward" else original(self, boundary)

    return [(Shard, "_weight", weight)]


@plant("wrong-k", invariant="boundary fidelity", scenario="shards-top50-6bit", strategy="shards")
def wrong_k() -> list[Patch]:
    """One percent fewer values are kept than were asked for."""
    original = codec.encode

    def encode(values: Array, keep_percent: int, bits: int) -> bytes:
        return original(values, keep_percent - 1, bits)

    return [(shard_jobs, "encode", encode)]


@plant("bits-in-the-wrong-order", invariant="boundary fidelity", scenario="shards-top50-6bit", strategy="shards")
def bits_reversed() -> list[Patch]:
    """The bits of each byte of packed values run from the other end, in encoder and decoder alike."""

    def turned(content: Any) -> Any:
        return np.packbits(np.unpackbits(np.ascontiguousarray(content)), bitorder="little")

    def reverse_pack(codes: Any, bits: int) -> Any:
        return turned(pack(codes, bits))

    def reverse_unpack(content: Any, count: int, bits: int) -> Any:
        return unpack(turned(content), count, bits)

    return [(codec, "pack", reverse_pack), (codec, "unpack", reverse_unpack)]


@plant("dense-bytes-reported", invariant="boundary fidelity", scenario="shards-top50-6bit", strategy="shards")
def dense_bytes() -> list[Patch]:
    """What is reported is the size of the dense tensor, at both ends, not the length of the payload."""

    def dense(fact: Any) -> Any:
        return replace(fact, payload_bytes=131_072)

    return [
        (shard_links, "BoundarySent", lambda *values: dense(BoundarySent(*values))),
        (shard_links, "BoundaryUsed", lambda *values: dense(BoundaryUsed(*values))),
    ]


# ---------------------------------------------------------------- gradient and update


def _added(times: int) -> list[Patch]:
    """Micro-batch 1 is added so many times."""
    original = ShardWork.add_gradient

    def add(self: ShardWork, micro_batch: int, gradient: Array, loss: float) -> None:
        original(self, micro_batch, gradient * float(times) if micro_batch == 1 else gradient, loss)

    return [(ShardWork, "add_gradient", add)]


@plant("micro-batch-dropped", invariant="gradient exactness", scenario="shards-clean", strategy="shards")
def micro_batch_dropped() -> list[Patch]:
    """The last micro-batch's gradient is not added."""
    return _added(0)


@plant("micro-batch-doubled", invariant="gradient exactness", scenario="shards-clean", strategy="shards")
def micro_batch_doubled() -> list[Patch]:
    """The last micro-batch's gradient is added twice."""
    return _added(2)


@plant("micro-batches-added-backwards", invariant="gradient exactness", scenario="shards-uneven", strategy="shards")
def micro_batches_backwards() -> list[Patch]:
    """The gradients of a step's micro-batches are summed in descending index."""
    original = ShardWork.add_gradient

    def add(self: ShardWork, micro_batch: int, gradient: Array, loss: float) -> None:
        original(self, micro_batch, gradient, loss)
        if self.next_backward == self.micro_batch_count:
            self.gradient = None
            for index in reversed(range(self.micro_batch_count)):
                self.gradient = add_micro_batch(
                    self.gradient, self.parts[index], self.contexts(index), len(self.batch.inputs)
                )

    return [(ShardWork, "add_gradient", add)]


@plant("gradient-of-an-old-attempt", invariant="gradient exactness", scenario="shards-kill-prepare", strategy="shards")
def old_attempt_added() -> list[Patch]:
    """A survivor starts the next attempt from the gradient of the one that failed."""
    original = Shard._new_work

    def new_work(self: Shard, message: Any) -> ShardWork:
        before = self._work
        work = original(self, message)
        if before is not None and not message.evaluate and before.key[1] == message.step:
            work.gradient = before.gradient
        return work

    return [(Shard, "_new_work", new_work)]


@plant("batch-drawn-anew", invariant="gradient exactness", scenario="shards-kill-prepare", strategy="shards")
def batch_drawn_anew() -> list[Patch]:
    """Another attempt of a step draws another batch."""
    original = Shard._new_work

    def new_work(self: Shard, message: Any) -> ShardWork:
        work = original(self, message)
        if message.attempt and not message.evaluate:
            context = self.config.model.context
            work.batch, work.generator = draw_batch(self.corpus.train, self.config.batch, context, work.generator)
        return work

    return [(Shard, "_new_work", new_work)]


@plant("weight-decay-forgotten", invariant="gradient exactness", scenario="shards-clean", strategy="shards")
def weight_decay_forgotten() -> list[Patch]:
    """AdamW's weight decay is left out of the update."""

    def without(config: OptimizerSettings, parameters: Array, state: OptimizerState, gradient: Array) -> Any:
        assert isinstance(config, AdamWConfig)
        return update(replace(config, weight_decay=0.0), parameters, state, gradient)

    return [(shard_jobs, "update", without)]
