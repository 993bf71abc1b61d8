"""What a run trains, as three small frozen values that refuse nonsense at construction.

Duty of the caller: read flags and files once, at the door, build these, and pass them down.
"""

import math
from dataclasses import dataclass
from typing import Literal, get_args

from training.errors import ConfigurationError

ModelKind = Literal["softmax", "mlp"]
BatchMode = Literal["per_worker", "global"]


def _require_choice(where: str, value: object, choices: tuple[str, ...]) -> None:
    if value not in choices:
        raise ConfigurationError(f"{where} is {value!r}; choose one of: {', '.join(choices)}")


def _require_count(where: str, value: object, minimum: int) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
        raise ConfigurationError(f"{where} is {value!r}; it must be a whole number of at least {minimum}")


def _require_real(where: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigurationError(f"{where} is {value!r}; it must be a finite number")
    return float(value)


@dataclass(frozen=True, slots=True)
class ModelConfig:
    """Which model, and its sizes (counts, no units).

    `hidden_count` is 0 for softmax regression and at least 1 for the MLP. Raises ConfigurationError.
    """

    kind: ModelKind
    feature_count: int
    class_count: int
    hidden_count: int = 0

    def __post_init__(self) -> None:
        _require_choice("model.kind", self.kind, get_args(ModelKind))
        _require_count("model.feature_count", self.feature_count, 1)
        _require_count("model.class_count", self.class_count, 2)
        _require_count("model.hidden_count", self.hidden_count, 1 if self.kind == "mlp" else 0)
        if self.kind == "softmax" and self.hidden_count != 0:
            raise ConfigurationError(
                f"model.hidden_count is {self.hidden_count} but model.kind is softmax, which has no hidden layer;"
                " leave it out, or choose kind mlp"
            )


@dataclass(frozen=True, slots=True)
class OptimizerConfig:
    """SGD: `learning_rate` > 0, `momentum` in [0, 1), both without units. Raises ConfigurationError."""

    learning_rate: float
    momentum: float = 0.0

    def __post_init__(self) -> None:
        if _require_real("optimizer.learning_rate", self.learning_rate) <= 0:
            raise ConfigurationError(f"optimizer.learning_rate is {self.learning_rate!r}; it must be above 0")
        if not 0 <= _require_real("optimizer.momentum", self.momentum) < 1:
            raise ConfigurationError(f"optimizer.momentum is {self.momentum!r}; it must be at least 0 and below 1")


@dataclass(frozen=True, slots=True)
class BatchConfig:
    """How many samples a step takes: `size` per member, or `size` in all. Raises ConfigurationError."""

    mode: BatchMode
    size: int

    def __post_init__(self) -> None:
        _require_choice("batch.mode", self.mode, get_args(BatchMode))
        _require_count("batch.size", self.size, 1)
