"""Sums over micro-batches to the last bit, and the fingerprint of a transformer's arithmetic."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from training.errors import ConfigurationError, ContractError
from training.transformer.config import TransformerConfig
from training.transformer.fingerprint import transformer_fingerprint
from training.transformer.sharding import cut
from training.transformer.step import add_micro_batch, central_gradient, mean_loss


def added(parts: list[Any], sizes: list[int]) -> Any:
    total = None
    for part, size in zip(parts, sizes, strict=True):
        total = add_micro_batch(total, np.atleast_1d(part), size, sum(sizes))
    return total


def test_kind_22_the_order_is_fixed_and_starts_from_the_first() -> None:
    assert added([1e8, 1.0, -1e8, 1.0], [1, 1, 1, 1]).tolist() == [((0.25e8 + 0.25) - 0.25e8) + 0.25]
    assert np.signbit(added([-0.0, -0.0], [1, 2]))[0]
    assert added([3.0, 6.0], [1, 2]).tolist() == [(1 / 3) * 3.0 + (2 / 3) * 6.0]
    assert mean_loss([(3.0, 1), (6.0, 2)], 3) == (1 / 3) * 3.0 + (2 / 3) * 6.0


def test_kind_10_what_does_not_fit_is_refused() -> None:
    wrong: list[Any] = [np.zeros(2), np.zeros(3, dtype=np.float32)]
    for bad in wrong:
        with pytest.raises(ContractError):
            add_micro_batch(np.zeros(3), bad, 1, 2)
    with pytest.raises(ContractError):
        add_micro_batch(None, np.zeros(3), 3, 2)
    with pytest.raises(ConfigurationError, match="without micro-batches"):
        mean_loss([], 3)


def test_the_loss_goes_with_the_gradient() -> None:
    config = TransformerConfig(5, block_count=1, width=4, head_count=1, mlp_width=4, context=3)
    (spec,) = cut(config)
    tokens = np.random.default_rng(0).integers(0, 5, size=(5, 4))
    parameters = np.random.default_rng(1).normal(size=spec.parameter_count)
    parts, sizes, losses = [], [2, 2, 1], []
    for start, size in zip((0, 2, 4), sizes, strict=True):
        own = tokens[start : start + size]
        loss, gradient = central_gradient(spec, parameters, own[:, :-1], own[:, 1:], 1)
        parts.append(gradient)
        losses.append((loss, size))
    loss, gradient = central_gradient(spec, parameters, tokens[:, :-1], tokens[:, 1:], 3)
    assert gradient.tobytes() == added(parts, sizes).tobytes()
    assert loss == mean_loss(losses, 5)


def test_fingerprint() -> None:
    config = TransformerConfig(5, block_count=3, width=4, head_count=1, mlp_width=4, context=3)
    found = transformer_fingerprint(config, 4)
    assert found == transformer_fingerprint(replace(config, block_count=9), 4)
    assert found not in (transformer_fingerprint(config, 3), transformer_fingerprint(replace(config, mlp_width=5), 4))
    with pytest.raises(ConfigurationError, match="0 contexts"):
        transformer_fingerprint(config, 0)
