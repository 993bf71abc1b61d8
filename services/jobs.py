"""Heavy computations, as data. A role emits them in `Compute` or `Load`; a shell runs them, perhaps on a thread.

A job is pure: what it returns depends on its fields alone (a `Load` job also on the disk), and it changes neither.
`inline` says that it is so small that a thread costs more than it does.
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from services.config import RunConfig
from services.messages import Array
from training.checkpoint import CheckpointState, Damage, cleanup_plan, newest_good, retention_plan, write_plan
from training.config import ModelConfig, OptimizerConfig
from training.dataset import Dataset, dataset_from_bytes
from training.digest import array_digest
from training.disk import Disk, DiskOp
from training.models import initial_parameters, loss_and_gradient
from training.numerics import model_fingerprint
from training.optimizer import apply_sgd
from training.sampler import SamplerState

INLINE_ELEMENTS_MAX = 16_384  # parameters up to which a job is run in place: 0.15 ms, about what a thread costs
INLINE_PRODUCTS_MAX = 1 << 19  # … and of a gradient, parameters times samples
CHECKPOINT_FOLDER = "checkpoints"


@dataclass(frozen=True, slots=True, eq=False)
class State:
    """Parameters and velocity after a step, float64 (P,) each, with their digests."""

    parameters: Array
    velocity: Array
    parameters_digest: str
    velocity_digest: str

    @classmethod
    def of(cls, parameters: Array, velocity: Array) -> State:
        return cls(parameters, velocity, array_digest(parameters), array_digest(velocity))


@dataclass(frozen=True, slots=True, eq=False)
class Gradient:
    """A contribution: mean gradient (P,) over `sample_ids`, in the order in which they were dealt."""

    sample_ids: tuple[int, ...]
    value: Array
    digest: str
    loss: float
    finite: bool


@dataclass(frozen=True, slots=True, eq=False)
class GradientJob:
    """Mean gradient over the dealt samples. Returns `Gradient`."""

    model: ModelConfig
    dataset: Dataset
    parameters: Array
    sample_ids: tuple[int, ...]

    @property
    def inline(self) -> bool:
        return self.parameters.size * max(1, len(self.sample_ids)) <= INLINE_PRODUCTS_MAX

    def __call__(self) -> Gradient:
        rows = np.array(self.sample_ids)
        features, labels = self.dataset.train_features.take(rows, axis=0), self.dataset.train_labels.take(rows)
        loss, value = loss_and_gradient(self.model, self.parameters, features, labels)
        return Gradient(self.sample_ids, value, array_digest(value), loss, bool(np.isfinite(value).all()))


@dataclass(frozen=True, slots=True, eq=False)
class ApplyJob:
    """One optimizer step from the reduced gradient. Returns `State`."""

    optimizer: OptimizerConfig
    state: State
    reduced: Array

    @property
    def inline(self) -> bool:
        return self.reduced.size <= INLINE_ELEMENTS_MAX

    def __call__(self) -> State:
        return State.of(*apply_sgd(self.optimizer, self.state.parameters, self.state.velocity, self.reduced))


@dataclass(frozen=True, slots=True, eq=False)
class InitialJob:
    """The state that a fresh run starts from. Returns `State`."""

    config: RunConfig
    inline: bool = False

    def __call__(self) -> State:
        parameters = initial_parameters(self.config.model, self.config.seed)
        return State.of(parameters, np.zeros_like(parameters))


@dataclass(frozen=True, slots=True, eq=False)
class ProveJob:
    """Digest a received state: parameters and velocity, one after the other in one array (2P,). Returns `State`."""

    joined: Array

    @property
    def inline(self) -> bool:
        return self.joined.size <= INLINE_ELEMENTS_MAX

    def __call__(self) -> State:
        half = self.joined.size // 2
        return State.of(self.joined[:half], self.joined[half:])


@dataclass(frozen=True, slots=True, eq=False)
class HeldData:
    dataset: Dataset
    numerics: str


@dataclass(frozen=True, slots=True, eq=False)
class OpenDataJob:
    """Check and open the received dataset, and fingerprint the run's own model on it. Returns `HeldData`."""

    blob: bytes
    config: RunConfig
    inline: bool = False

    def __call__(self) -> HeldData:
        dataset = dataset_from_bytes(self.blob, self.config.dataset_sha256)
        rows = max(1, min(self.config.batch.size, self.config.sample_count))
        return HeldData(dataset, model_fingerprint(self.config.model, rows))


@dataclass(frozen=True, slots=True, eq=False)
class EncodeCheckpointJob:
    """The disk operations that make a checkpoint durable. Returns a tuple of `DiskOp`."""

    state: CheckpointState
    incarnation: int

    @property
    def inline(self) -> bool:
        return self.state.parameters.size <= INLINE_ELEMENTS_MAX

    def __call__(self) -> tuple[DiskOp, ...]:
        return write_plan(CHECKPOINT_FOLDER, self.state, self.incarnation)


def checkpoint_state(
    config: RunConfig, step: int, generation: int, state: State, sampler: SamplerState
) -> CheckpointState:
    """What a checkpoint after `step` holds."""
    return CheckpointState(
        step, generation, state.parameters, state.velocity, sampler, config.model, config.dataset_sha256
    )


@dataclass(frozen=True, slots=True, eq=False)
class FoundCheckpoint:
    name: str
    checkpoint: CheckpointState
    state: State
    damages: tuple[Damage, ...]


@dataclass(frozen=True, slots=True, eq=False)
class FindCheckpointJob:
    """`Load`: the newest good checkpoint of the run. Returns `FoundCheckpoint`; raises CheckpointError."""

    model: ModelConfig
    dataset_sha256: str

    def __call__(self, disk: Disk) -> FoundCheckpoint:
        name, found, damages = newest_good(disk, CHECKPOINT_FOLDER, self.model, self.dataset_sha256)
        return FoundCheckpoint(name, found, State.of(found.parameters, found.velocity), damages)


@dataclass(frozen=True, slots=True)
class RetentionJob:
    """`Load`: operations that remove what killed writers left behind, or else the checkpoints beyond `keep`.

    Not both: they may be about the same folder. Returns a tuple of `DiskOp`.
    """

    keep: int

    def __call__(self, disk: Disk) -> tuple[DiskOp, ...]:
        return cleanup_plan(disk, CHECKPOINT_FOLDER) or retention_plan(disk, CHECKPOINT_FOLDER, self.keep)
