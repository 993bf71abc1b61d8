"""What a scenario trains: data, model, optimizer, batch, sizes and the protocol's durations, all with defaults.

The defaults are small on purpose: eight features and four classes are 36 parameters (288 B), and 107 samples do not
divide evenly by anything, so every epoch ends on a short batch.
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from chaos.fault_kinds.base import Milliseconds, Strict
from services.config import Timing
from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.datasets import DatasetSpec
from training.models import parameter_count

WORKERS_MAX = 64
STEPS_MAX = 1_000_000
KNOWN_SHAPES = {"digits": (64, 10)}  # feature and class counts of data sets whose shape is known beforehand

Count = Annotated[int, Field(ge=1)]
Seed = Annotated[int, Field(ge=0, lt=2**63)]


class DatasetSetup(Strict):
    """Which data, see `training.datasets`. Sizes shape the blobs and mean nothing elsewhere."""

    kind: Literal["blobs", "digits", "file"] = "blobs"
    sample_count: Count = 107
    """Training samples of the blobs."""
    feature_count: Count = 8
    class_count: Annotated[int, Field(ge=2)] = 4
    path: str = ""
    """For kind file: a .csv or .npz."""
    seed: Seed = 0
    """Makes the blobs; draws the held-out part where the data has none."""

    @model_validator(mode="after")
    def _path_goes_with_file(self) -> DatasetSetup:
        if (self.kind == "file") != bool(self.path):
            raise PydanticCustomError("path", "a path goes with kind file, and kind file needs one")
        return self

    def spec(self) -> DatasetSpec:
        """As `training.datasets.load_dataset` takes it."""
        return DatasetSpec(
            self.kind, self.seed, self.sample_count, self.feature_count, self.class_count, self.path
        )  # fmt: skip


class ModelSetup(Strict):
    """Softmax regression, or an MLP with one hidden layer."""

    kind: Literal["softmax", "mlp"] = "softmax"
    hidden_count: Annotated[int, Field(ge=0)] = 0
    """Hidden units; an MLP needs at least one, softmax has none."""

    @model_validator(mode="after")
    def _hidden_goes_with_mlp(self) -> ModelSetup:
        if (self.kind == "mlp") != (self.hidden_count > 0):
            raise PydanticCustomError("hidden", "hidden_count goes with kind mlp, and kind mlp needs one")
        return self

    def config(self, feature_count: int, class_count: int) -> ModelConfig:
        """Together with the shape of the data."""
        return ModelConfig(self.kind, feature_count, class_count, self.hidden_count)


class OptimizerSetup(Strict):
    """SGD."""

    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] = 0.1
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] = 0.9

    def config(self) -> OptimizerConfig:
        """As the run takes it."""
        return OptimizerConfig(self.learning_rate, self.momentum)


class BatchSetup(Strict):
    """Samples of a step: `size` for each member, or `size` in all."""

    mode: Literal["per_worker", "global"] = "per_worker"
    size: Count = 5

    def config(self) -> BatchConfig:
        """As the run takes it."""
        return BatchConfig(self.mode, self.size)


class TimingSetup(Strict):
    """Durations of the protocol in milliseconds of the role clock; what is left out is as in `services.config`."""

    lease_ms: Milliseconds | None = None
    reconnect_ms: Milliseconds | None = None
    deadline_ms: Milliseconds | None = None
    exchange_ms: Milliseconds | None = None
    resend_ms: Milliseconds | None = None
    join_wait_ms: Milliseconds | None = None
    nobody_ms: Milliseconds | None = None

    def timing(self) -> Timing:
        """With the defaults filled in."""
        return Timing(**{name: float(value) for name, value in self if value is not None})


class TrainingSetup(Strict):
    """Everything that decides the mathematics of a run, and its sizes."""

    dataset: DatasetSetup = DatasetSetup()
    model: ModelSetup = ModelSetup()
    optimizer: OptimizerSetup = OptimizerSetup()
    batch: BatchSetup = BatchSetup()
    workers: Annotated[int, Field(ge=1, le=WORKERS_MAX)] = 4
    """The first cast: worker-1 … worker-<workers>."""
    steps: Annotated[int, Field(ge=1, le=STEPS_MAX)] = 16
    seed: Seed = 1
    """Parameters, order of the samples, and every draw of the simulator."""
    chunk_elements: Annotated[int, Field(ge=1, le=1_048_576)] = 131_072
    """Elements (float64) of one chunk on the wire."""
    checkpoint_every: Count = 5
    """Steps between two checkpoints."""
    timing: TimingSetup = TimingSetup()

    @property
    def chunk_count(self) -> int | None:
        """Chunks of the gradient, or None where the shape of the data is known only when it is read."""
        shape = (self.dataset.feature_count, self.dataset.class_count)
        if self.dataset.kind != "blobs":
            known = KNOWN_SHAPES.get(self.dataset.kind)
            if known is None:
                return None
            shape = known
        return -(-parameter_count(self.model.config(*shape)) // self.chunk_elements)
