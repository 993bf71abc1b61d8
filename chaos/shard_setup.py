"""What a scenario of layer-sharded training trains: tokens, model, where it is cut, and how boundaries travel.

The defaults are those of the prototype (6 blocks in 3 shards, width 32, AdamW) with few steps. What cannot be is
refused here, by the constructors of `training` and `services.shard_config`; a text's length only when it is read.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from chaos.fault_kinds.base import Milliseconds, Strict
from chaos.training_setup import STEPS_MAX, Count, Seed, TimingSetup
from services.shard_config import Compression, ShardRunConfig, Staleness
from training.adamw import AdamWConfig
from training.boundary_codec.feedback import WHY_UNSUPPORTED
from training.config import OptimizerConfig
from training.corpora import CorpusSpec
from training.errors import ConfigurationError
from training.optimizers import OptimizerSettings
from training.staleness import DecayConfig, DelayConfig
from training.transformer.config import TransformerConfig
from training.transformer.sharding import MAX_SHARDS, cut, even_cuts
from training.transformer.step import micro_batches

Ticks = Annotated[int, Field(ge=0)]


class TokensSetup(Strict):
    """Which tokens: the sample verse, a synthetic language, or a text of the user's."""

    kind: Literal["sample", "synthetic", "text"] = "sample"
    level: Literal["character", "byte"] = "character"
    """How a text is read."""
    held_out: Annotated[float, Field(ge=0, le=0.5)] = 0.0
    """Share of a text, at its end, that is evaluated on and not trained on; 0 evaluates on all of it."""
    path: str = ""
    """For kind text: the file."""
    seed: Seed = 0
    """Makes the synthetic language."""
    vocabulary_size: Annotated[int, Field(ge=2)] = 27
    """Tokens of the synthetic language."""

    @model_validator(mode="after")
    def _path_goes_with_text(self) -> TokensSetup:
        if (self.kind == "text") != bool(self.path):
            raise PydanticCustomError("path", "a path goes with kind text, and kind text needs one")
        return self

    def spec(self) -> CorpusSpec:
        """As `training.corpora.load_corpus` takes it."""
        return CorpusSpec(self.kind, self.level, self.held_out, self.seed, self.vocabulary_size)


class TransformerSetup(Strict):
    """Sizes of the transformer; the tokens say its vocabulary."""

    block_count: Count = 6
    width: Count = 32
    head_count: Count = 4
    mlp_width: Count = 64
    context: Count = 64
    """Tokens of a context."""

    def config(self, vocabulary_size: int) -> TransformerConfig:
        """Together with the vocabulary. Raises ConfigurationError."""
        return TransformerConfig(
            vocabulary_size, self.block_count, self.width, self.head_count, self.mlp_width, self.context
        )


class ShardOptimizerSetup(Strict):
    """AdamW, or SGD with momentum. What is left out is as in `training`."""

    kind: Literal["adamw", "sgd"] = "adamw"
    learning_rate: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = None
    weight_decay: Annotated[float, Field(ge=0, allow_inf_nan=False)] | None = None
    """AdamW's."""
    momentum: Annotated[float, Field(ge=0, lt=1, allow_inf_nan=False)] | None = None
    """SGD's."""

    @model_validator(mode="after")
    def _settings_go_with_kind(self) -> ShardOptimizerSetup:
        other = "momentum" if self.kind == "adamw" else "weight_decay"
        if getattr(self, other) is not None:
            raise PydanticCustomError("optimizer", "{kind} has no {other}", {"kind": self.kind, "other": other})
        return self

    def config(self) -> OptimizerSettings:
        """As the run takes it."""
        given = {name: value for name, value in self if name != "kind" and value is not None}
        if self.kind == "adamw":
            return AdamWConfig(**given)
        return OptimizerConfig(**{"learning_rate": 0.1, "momentum": 0.9, **given})


class DelaySetup(Strict):
    """How long a boundary takes, in ticks, drawn from the seed by its sender; see `training.staleness`."""

    base_ticks: Ticks = 0
    jitter_ticks: Ticks = 0
    reorder_probability: Annotated[float, Field(ge=0, le=1)] = 0.0


class DecaySetup(Strict):
    """A boundary of age a counts max(floor, exp(-rate * a))."""

    rate: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.5
    floor: Annotated[float, Field(ge=0, le=1)] = 0.25


class StalenessSetup(Strict):
    """How old boundaries are and may be."""

    tick_ms: Milliseconds = 1.0
    max_staleness: Ticks = 0
    """Ticks; an older boundary stops the run by name."""
    delay: DelaySetup = DelaySetup()
    decay: DecaySetup | None = None
    age: Literal["injected", "measured"] = "injected"
    """injected: drawn from the seed, really waited. measured: what a boundary took, on one machine; never `fixed`."""

    @model_validator(mode="after")
    def _can_be(self) -> StalenessSetup:
        try:
            self.config()
        except ConfigurationError as error:
            raise PydanticCustomError("staleness", "{why}", {"why": str(error)}) from error
        return self

    def config(self) -> Staleness:
        """As the run takes it. Raises ConfigurationError."""
        decay = None if self.decay is None else DecayConfig(self.decay.rate, self.decay.floor)
        delay = DelayConfig(self.delay.base_ticks, self.delay.jitter_ticks, self.delay.reorder_probability)
        return Staleness(self.tick_ms, self.max_staleness, delay, decay, self.age)


class CompressionSetup(Strict):
    """What of a boundary is sent."""

    keep_percent: Annotated[int, Field(ge=1, le=100)]
    """The largest magnitudes, so many percent of them."""
    bits: int
    """4, 6, 8 or 12 for each."""
    error_feedback: bool = False
    """Not supported; it is here to say why."""

    @model_validator(mode="after")
    def _is_supported(self) -> CompressionSetup:
        if self.bits not in (4, 6, 8, 12):
            raise PydanticCustomError("bits", "{bits} bits; choose 4, 6, 8 or 12", {"bits": self.bits})
        if self.error_feedback:
            raise PydanticCustomError("error_feedback", "{why}", {"why": WHY_UNSUPPORTED})
        return self

    def config(self) -> Compression:
        """As the run takes it."""
        return Compression(self.keep_percent, self.bits)


class ShardTrainingSetup(Strict):
    """Everything that decides the mathematics of a layer-sharded run, and its sizes."""

    kind: Literal["shards"]
    """Tells this from data-parallel training."""
    tokens: TokensSetup = TokensSetup()
    model: TransformerSetup = TransformerSetup()
    shards: Annotated[int, Field(ge=1, le=MAX_SHARDS)] | None = None
    """Into how many shards of nearly equal size the blocks are cut; 3 when `cuts` is left out, too."""
    cuts: list[int] | None = None
    """Instead: the blocks in front of which the cuts stand, ascending; [2, 4] cuts 6 blocks into 3 shards."""
    batch: Count = 8
    """Contexts of a step."""
    micro_batches: Count = 1
    optimizer: ShardOptimizerSetup = ShardOptimizerSetup()
    steps: Annotated[int, Field(ge=1, le=STEPS_MAX)] = 8
    seed: Seed = 1
    """Parameters, batches, delays, and every draw of the simulator."""
    staleness: StalenessSetup = StalenessSetup()
    compression: CompressionSetup | None = None
    evaluate_every: Count = 4
    """Steps between two evaluations; also before the first and after the last step."""
    evaluation_contexts: Annotated[int, Field(ge=1, le=100_000)] = 32
    checkpoint_every: Count = 1
    """Steps between two prepared files; with more than 1, a death after a commit may roll everybody back."""
    timing: TimingSetup = TimingSetup()

    @model_validator(mode="after")
    def _can_be(self) -> ShardTrainingSetup:
        if self.shards is not None and self.cuts is not None:
            raise PydanticCustomError("shards", "give either shards or cuts")
        try:
            cut(self.model.config(2), self.cut_at)
            micro_batches(self.batch, self.micro_batches)
        except ConfigurationError as error:
            raise PydanticCustomError("setup", "{why}", {"why": str(error)}) from error
        staleness, deadline_ms = self.staleness.config(), self.timing.timing().deadline_ms
        waits_ms = staleness.tick_ms * staleness.delay.longest_ticks * 2 * (self.workers - 1)  # there and back
        if waits_ms >= deadline_ms:
            why = "boundaries may wait {waits} ms on their way there and back, an attempt at a step has {deadline} ms"
            found = {"waits": f"{waits_ms:g}", "deadline": f"{deadline_ms:g}"}
            raise PydanticCustomError("staleness", f"{why}; choose a smaller delay or a longer deadline", found)
        return self

    @property
    def cut_at(self) -> tuple[int, ...]:
        """The blocks in front of which the cuts stand."""
        if self.cuts is not None:
            return tuple(self.cuts)
        return even_cuts(self.model.block_count, 3 if self.shards is None else self.shards)

    @property
    def workers(self) -> int:
        """The number of shards: shard-1 … shard-<workers>."""
        return len(self.cut_at) + 1

    @property
    def chunk_count(self) -> int:
        """What a phase of a shard counts within a step: micro-batches."""
        return self.micro_batches

    def evaluates_at(self, step: int) -> bool:
        """Whether the model is evaluated after this step."""
        return step % self.evaluate_every == 0 or step == self.steps

    def config(self, run_id: str, dataset_name: str, dataset_sha256: str, vocabulary_size: int) -> ShardRunConfig:
        """What the roles are told."""
        given: dict[str, Any] = {
            name: getattr(self, name)
            for name in (
                "seed", "steps", "batch", "micro_batches", "evaluate_every", "evaluation_contexts", "checkpoint_every",
            )
        }  # fmt: skip
        return ShardRunConfig(
            run_id=run_id, model=self.model.config(vocabulary_size), cuts=self.cut_at,
            optimizer=self.optimizer.config(), dataset_name=dataset_name, dataset_sha256=dataset_sha256,
            staleness=self.staleness.config(),
            compression=None if self.compression is None else self.compression.config(), timing=self.timing.timing(),
            **given,
        )  # fmt: skip
