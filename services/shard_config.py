"""What a run of layer-sharded training is told once, at the door. The coordinator owns it and ships it in `Welcome`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from services.config import PARAMETERS_MAX, Timing
from training.adamw import AdamWConfig
from training.config import OptimizerConfig
from training.errors import ConfigurationError
from training.optimizers import OptimizerSettings
from training.staleness import DecayConfig, DelayConfig
from training.transformer.config import TransformerConfig
from training.transformer.sharding import ShardSpec, cut
from training.transformer.step import micro_batches


@dataclass(frozen=True, slots=True)
class Staleness:
    """How long boundaries take and how old they may be. `max_staleness` in ticks of `tick_ms`.

    age: "injected" (drawn from the seed, really waited, the default) or "measured" (nothing waits on purpose; from the
    sender's link to the receiver's, which needs one clock: all roles on one machine). Raises ConfigurationError.
    """

    tick_ms: float = 1.0
    max_staleness: int = 0
    delay: DelayConfig = field(default_factory=DelayConfig)
    decay: DecayConfig | None = None
    age: Literal["injected", "measured"] = "injected"

    def __post_init__(self) -> None:
        if not self.tick_ms > 0:
            raise ConfigurationError(f"staleness.tick_ms is {self.tick_ms!r}; it must be above 0")
        if self.max_staleness < 0:
            raise ConfigurationError(f"staleness.max_staleness is {self.max_staleness}; it must be at least 0")
        if self.age not in ("injected", "measured"):
            raise ConfigurationError(f"staleness.age is {self.age!r}; it is injected or measured")
        if self.age == "measured" and self.delay.longest_ticks:
            raise ConfigurationError("staleness.age is measured, so no delay is drawn: leave staleness.delay out")


@dataclass(frozen=True, slots=True)
class Compression:
    """Keep the top `keep_percent` by magnitude and quantise to `bits`."""

    keep_percent: int
    bits: int

    def __post_init__(self) -> None:
        if not 1 <= self.keep_percent <= 100:
            raise ConfigurationError(f"compression.keep_percent is {self.keep_percent}; it must be in 1 .. 100")
        if self.bits not in (4, 6, 8, 12):
            raise ConfigurationError(f"compression.bits is {self.bits}; choose 4, 6, 8 or 12")


@dataclass(frozen=True, slots=True)
class ShardRunConfig:
    """Everything that decides the mathematics of a layer-sharded run, and the limits of the protocol.

    `workers` is the number of shards; their numbers are 1..workers. `cuts` are block indices (`training.transformer`).
    """

    run_id: str
    seed: int
    steps: int
    model: TransformerConfig
    cuts: tuple[int, ...]
    batch: int  # contexts per step
    micro_batches: int
    optimizer: OptimizerSettings
    dataset_name: str
    dataset_sha256: str
    evaluate_every: int = 10  # steps; also before the first and after the last
    evaluation_contexts: int = 32
    staleness: Staleness = field(default_factory=Staleness)
    compression: Compression | None = None
    checkpoint_every: int = 1  # steps
    checkpoint_keep: int = 3
    expected_joins: tuple[tuple[int, int], ...] = ()
    timing: Timing = field(default_factory=Timing)
    strategy: Literal["shards"] = "shards"

    def __post_init__(self) -> None:
        cut(self.model, self.cuts)
        micro_batches(self.batch, self.micro_batches)
        count = max(spec.parameter_count for spec in self.specs)
        if count > PARAMETERS_MAX:
            raise ConfigurationError(
                f"a shard of {count} parameters ({count * 8 / 1e6:.0f} MB) is too large: the verifier takes its state"
                f" in one record, of at most {PARAMETERS_MAX} parameters; cut the model into more shards"
            )

    @property
    def specs(self) -> tuple[ShardSpec, ...]:
        return cut(self.model, self.cuts)

    @property
    def workers(self) -> int:
        return len(self.cuts) + 1

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> ShardRunConfig:
        """Inverse of `to_json`. Raises TypeError or KeyError on a document of another version."""
        raw: dict[str, Any] = json.loads(text)
        known = {item.name for item in fields(cls)}
        if set(raw) != known:
            raise TypeError(f"run configuration of another version: {sorted(set(raw) ^ known)}")
        staleness = raw["staleness"]
        decay = staleness["decay"]
        raw["staleness"] = Staleness(
            staleness["tick_ms"], staleness["max_staleness"], DelayConfig(**staleness["delay"]),
            None if decay is None else DecayConfig(**decay), staleness["age"],
        )  # fmt: skip
        optimizer = raw["optimizer"]
        raw["optimizer"] = OptimizerConfig(**optimizer) if "momentum" in optimizer else AdamWConfig(**optimizer)
        raw["compression"] = None if raw["compression"] is None else Compression(**raw["compression"])
        raw["model"] = TransformerConfig(**raw["model"])
        raw["timing"] = Timing(**raw["timing"])
        raw["cuts"] = tuple(raw["cuts"])
        raw["expected_joins"] = tuple((step, shard) for step, shard in raw["expected_joins"])
        return cls(**raw)
