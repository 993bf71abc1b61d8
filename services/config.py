"""What a run is told once, at the door. The coordinator owns it and ships it to every member in `Welcome`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field, fields
from typing import Any, Literal

from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.errors import ConfigurationError
from training.models import parameter_count

Strategy = Literal["ring", "ps"]

PARAMETERS_MAX = 1 << 25  # the state that a run starts from, two arrays of so many, is one record: 512 MiB


@dataclass(frozen=True, slots=True)
class Timing:
    """Durations of the protocol, all in milliseconds of the role clock."""

    lease_ms: float = 3000.0  # silence after which a linked member is dead
    reconnect_ms: float = 150.0  # a broken link may come back within this
    deadline_ms: float = 10_000.0  # open -> offer; past it a member is a straggler
    exchange_ms: float = 5000.0  # close -> ready; past it the same contributors try again
    resend_ms: float = 1000.0  # the coordinator asks again
    join_wait_ms: float = 20_000.0  # start, and an open that waits for a scheduled joiner
    nobody_ms: float = 20_000.0  # with no member left, how long to wait for one


@dataclass(frozen=True, slots=True)
class RunConfig:
    """Everything that decides the mathematics of a run, and the limits of the protocol."""

    run_id: str
    seed: int
    strategy: Strategy
    workers: int  # the ids 1..workers make up the first membership
    steps: int
    model: ModelConfig
    optimizer: OptimizerConfig
    batch: BatchConfig
    dataset_name: str
    dataset_sha256: str
    sample_count: int
    chunk_elements: int = 131_072  # 1 MiB of float64
    checkpoint_every: int = 10  # steps; a checkpoint is also written at the start and at the end
    checkpoint_keep: int = 3
    evidence_gradient_elements: int = 8192  # contributions of models up to this size are recorded whole
    expected_joins: tuple[tuple[int, int], ...] = ()  # (step, worker): that open waits for that worker
    timing: Timing = field(default_factory=Timing)

    def __post_init__(self) -> None:
        count = parameter_count(self.model)
        if count > PARAMETERS_MAX:
            raise ConfigurationError(
                f"a model of {count} parameters ({count * 8 / 1e6:.0f} MB) is too large: the verifier takes its state"
                f" in one record, of at most {PARAMETERS_MAX} parameters; choose a smaller one"
            )

    def to_json(self) -> str:
        """Canonical JSON: sorted keys, no spaces."""
        return json.dumps(asdict(self), sort_keys=True, separators=(",", ":"))

    @classmethod
    def from_json(cls, text: str) -> RunConfig:
        """Inverse of `to_json`. Raises TypeError or KeyError on a document of another version."""
        raw: dict[str, Any] = json.loads(text)
        known = {item.name for item in fields(cls)}
        if set(raw) != known:
            raise TypeError(f"run configuration of another version: {sorted(set(raw) ^ known)}")
        raw["model"] = ModelConfig(**raw["model"])
        raw["optimizer"] = OptimizerConfig(**raw["optimizer"])
        raw["batch"] = BatchConfig(**raw["batch"])
        raw["timing"] = Timing(**raw["timing"])
        raw["expected_joins"] = tuple((step, worker) for step, worker in raw["expected_joins"])
        return cls(**raw)
