"""Configuration values refuse nonsense and say what to do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest

from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.errors import ConfigurationError, GradstormError


def test_valid_configurations() -> None:
    assert ModelConfig("softmax", 8, 4).hidden_count == 0
    assert ModelConfig("mlp", 8, 4, 16).hidden_count == 16
    assert OptimizerConfig(0.1).momentum == 0.0
    assert BatchConfig("global", 12).size == 12


BAD: tuple[tuple[Callable[..., Any], tuple[Any, ...], str], ...] = (
    (ModelConfig, ("cnn", 8, 4), "model.kind"),
    (ModelConfig, ("softmax", 0, 4), "model.feature_count"),
    (ModelConfig, ("softmax", 8, 1), "model.class_count"),
    (ModelConfig, ("softmax", 8.0, 4), "model.feature_count"),
    (ModelConfig, ("softmax", True, 4), "model.feature_count"),
    (ModelConfig, ("softmax", 8, 4, 3), "no hidden layer"),
    (ModelConfig, ("mlp", 8, 4), "model.hidden_count"),
    (OptimizerConfig, (0.0,), "learning_rate"),
    (OptimizerConfig, (float("nan"),), "learning_rate"),
    (OptimizerConfig, (float("inf"),), "learning_rate"),
    (OptimizerConfig, ("0.1",), "learning_rate"),
    (OptimizerConfig, (0.1, 1.0), "momentum"),
    (OptimizerConfig, (0.1, -0.1), "momentum"),
    (BatchConfig, ("static", 4), "batch.mode"),
    (BatchConfig, ("global", 0), "batch.size"),
    (BatchConfig, ("per_worker", 1.5), "batch.size"),
)


@pytest.mark.parametrize(("make", "arguments", "message"), BAD)
def test_refused(make: Callable[..., Any], arguments: tuple[Any, ...], message: str) -> None:
    with pytest.raises(ConfigurationError, match=message):
        make(*arguments)


def test_every_error_is_ours() -> None:
    assert issubclass(ConfigurationError, GradstormError)
