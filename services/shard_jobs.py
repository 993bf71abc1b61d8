"""Heavy computations of layer-sharded training, as data; see `services.jobs` for what a job is."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass

import numpy as np

from services.messages import Array
from services.shard_config import Compression, ShardRunConfig
from training.arrays import IntArray
from training.boundary_codec.codec import decode, encode, encode_dense
from training.corpus_bytes import corpus_from_bytes
from training.digest import array_digest
from training.disk import Disk, DiskOp
from training.errors import NonFiniteError
from training.generator import GeneratorState
from training.optimizers import OptimizerSettings, start, update
from training.shard_snapshot import ShardSnapshot, retention_plan
from training.shard_snapshot import decode as decode_snapshot
from training.shard_snapshot import write_plan as snapshot_plan
from training.tokens import Corpus, batch_generator, require_context
from training.transformer.fingerprint import transformer_fingerprint
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.shard import ShardCache, shard_backward, shard_forward
from training.transformer.sharding import ShardSpec
from training.transformer.step import micro_batches


@dataclass(frozen=True, slots=True, eq=False)
class ShardState:
    """A shard's state after a step, with its digests."""

    snapshot: ShardSnapshot
    parameters_digest: str
    moments_digest: str

    @classmethod
    def of(cls, snapshot: ShardSnapshot) -> ShardState:
        joined = hashlib.sha256(b"%d" % snapshot.moments.step_count)
        for moment in snapshot.moments.moments:
            joined.update(array_digest(moment).encode())
        return cls(snapshot, array_digest(snapshot.parameters), joined.hexdigest())


@dataclass(frozen=True, slots=True, eq=False)
class HeldCorpus:
    corpus: Corpus
    numerics: str


@dataclass(frozen=True, slots=True, eq=False)
class OpenCorpusJob:
    """Check and open the received tokens. Returns `HeldCorpus`."""

    blob: bytes
    config: ShardRunConfig
    inline: bool = False

    def __call__(self) -> HeldCorpus:
        corpus = corpus_from_bytes(self.blob, self.config.dataset_sha256)
        require_context(corpus, self.config.model.context)
        start, stop = micro_batches(self.config.batch, self.config.micro_batches)[0]
        return HeldCorpus(corpus, transformer_fingerprint(self.config.model, stop - start))


@dataclass(frozen=True, slots=True, eq=False)
class InitialShardJob:
    """The state that a fresh run starts from. Returns `ShardState`."""

    spec: ShardSpec
    optimizer: OptimizerSettings
    seed: int
    inline: bool = False

    def __call__(self) -> ShardState:
        parameters = initial_parameters(self.spec, self.seed)
        moments = start(self.optimizer, parameters.size)
        return ShardState.of(ShardSnapshot(0, parameters, moments, batch_generator(self.seed)))


@dataclass(frozen=True, slots=True, eq=False)
class LoadShardJob:
    """`Load`: the state in a prepared file. Returns `ShardState`; raises CheckpointError or OSError."""

    path: str
    spec: ShardSpec

    def __call__(self, disk: Disk) -> ShardState:
        return ShardState.of(decode_snapshot(self.path, disk.read(self.path), self.spec))


@dataclass(frozen=True, slots=True)
class ShardRetentionJob:
    """`Load`: the operations that remove this shard's files of steps before `oldest_step`. A tuple of `DiskOp`."""

    shard: int
    oldest_step: int

    def __call__(self, disk: Disk) -> tuple[DiskOp, ...]:
        return retention_plan(disk, self.shard, self.oldest_step)


@dataclass(frozen=True, slots=True, eq=False)
class Crossing:
    """What is to cross a cut: `payload` as it is sent, `dense` as it was computed."""

    payload: bytes
    dense: Array


def crossing(dense: Array, compression: Compression | None) -> Crossing:
    """Encode. Raises ContractError for what is not finite.

    Activations are compressed, their gradients are not: those pass the codec as if it were not there.
    """
    flat = np.ascontiguousarray(dense).reshape(-1)
    if compression is None:
        return Crossing(encode_dense(flat), flat)
    return Crossing(encode(flat, compression.keep_percent, compression.bits), flat)


@dataclass(frozen=True, slots=True, eq=False)
class Arrived:
    """A boundary as it arrived: decoded, then scaled by `weight`."""

    payload: bytes
    shape: tuple[int, int, int]
    weight: float

    def values(self) -> Array:
        """float64 of `shape`. Raises ContractError for a payload that is none."""
        flat = decode(self.payload, self.shape[0] * self.shape[1] * self.shape[2])
        return (flat if self.weight == 1.0 else self.weight * flat).reshape(self.shape)


@dataclass(frozen=True, slots=True, eq=False)
class Went:
    """Forward result of one micro-batch: what crosses to the next shard, and what backward needs."""

    micro_batch: int
    crossing: Crossing
    cache: ShardCache


@dataclass(frozen=True, slots=True, eq=False)
class ForwardJob:
    """One micro-batch through a shard that is not the last. Returns `Went`."""

    spec: ShardSpec
    parameters: Array
    micro_batch: int
    shard_input: IntArray | Arrived
    compression: Compression | None
    inline: bool = False

    def __call__(self) -> Went:
        given = self.shard_input.values() if isinstance(self.shard_input, Arrived) else self.shard_input
        output, cache = shard_forward(self.spec, self.parameters, given)
        return Went(self.micro_batch, crossing(output, self.compression), cache)


@dataclass(frozen=True, slots=True, eq=False)
class Returned:
    """Backward result of one micro-batch: what crosses to the shard before (None from the first), the gradient."""

    micro_batch: int
    crossing: Crossing | None
    gradient: Array
    loss: float


@dataclass(frozen=True, slots=True, eq=False)
class LossJob:
    """One micro-batch through the last shard, forward and back. Returns `Returned`."""

    spec: ShardSpec
    parameters: Array
    micro_batch: int
    shard_input: IntArray | Arrived
    targets: IntArray
    inline: bool = False

    def __call__(self) -> Returned:
        given = self.shard_input.values() if isinstance(self.shard_input, Arrived) else self.shard_input
        logits, cache = shard_forward(self.spec, self.parameters, given)
        loss, logits_gradient = cross_entropy(logits, self.targets)
        back, gradient = shard_backward(self.spec, self.parameters, cache, logits_gradient)
        sent = None if back is None else crossing(back, None)
        return Returned(self.micro_batch, sent, gradient, loss)


@dataclass(frozen=True, slots=True, eq=False)
class BackwardJob:
    """One micro-batch back through a shard that is not the last. Returns `Returned`."""

    spec: ShardSpec
    parameters: Array
    micro_batch: int
    cache: ShardCache
    arrived: Arrived
    inline: bool = False

    def __call__(self) -> Returned:
        back, gradient = shard_backward(self.spec, self.parameters, self.cache, self.arrived.values())
        sent = None if back is None else crossing(back, None)
        return Returned(self.micro_batch, sent, gradient, 0.0)


@dataclass(frozen=True, slots=True, eq=False)
class EvaluateJob:
    """Evaluation loss at the last shard. Returns a float."""

    spec: ShardSpec
    parameters: Array
    shard_input: IntArray | Arrived
    targets: IntArray
    inline: bool = False

    def __call__(self) -> float:
        given = self.shard_input.values() if isinstance(self.shard_input, Arrived) else self.shard_input
        return cross_entropy(shard_forward(self.spec, self.parameters, given)[0], self.targets)[0]


@dataclass(frozen=True, slots=True, eq=False)
class UpdateShardJob:
    """The optimizer step. `generator` is where the batches stand after this step. Returns `ShardState`."""

    optimizer: OptimizerSettings
    snapshot: ShardSnapshot
    gradient: Array
    generator: GeneratorState
    inline: bool = False

    def __call__(self) -> ShardState:
        before = self.snapshot
        if not np.isfinite(self.gradient).all():
            raise NonFiniteError("the gradient is not finite")
        parameters, moments = update(self.optimizer, before.parameters, before.moments, self.gradient)
        return ShardState.of(ShardSnapshot(before.step + 1, parameters, moments, self.generator))


@dataclass(frozen=True, slots=True, eq=False)
class SkipShardJob:
    """A step that changes nothing but what was drawn. Returns `ShardState`."""

    snapshot: ShardSnapshot
    generator: GeneratorState
    inline: bool = False

    def __call__(self) -> ShardState:
        before = self.snapshot
        return ShardState.of(ShardSnapshot(before.step + 1, before.parameters, before.moments, self.generator))


@dataclass(frozen=True, slots=True, eq=False)
class EncodeShardJob:
    """The disk operations that make a prepared state durable. Returns a tuple of `DiskOp`."""

    path: str
    spec: ShardSpec
    snapshot: ShardSnapshot
    inline: bool = False

    def __call__(self) -> tuple[DiskOp, ...]:
        return snapshot_plan(self.path, self.spec, self.snapshot)
