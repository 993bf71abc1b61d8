"""Small examples by hand, causality, and what happens at the edges of a layer."""

from __future__ import annotations

import math
import warnings
from typing import Any

import numpy as np
import pytest

from training.errors import ConfigurationError, ContractError
from training.transformer.attention import attention_forward
from training.transformer.config import TransformerConfig
from training.transformer.embedding import embedding_backward, embedding_forward
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.layout import BlockParameters, EmbeddingParameters, block_shapes, element_count, views
from training.transformer.mlp import mlp_forward
from training.transformer.norm import norm_forward
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import cut

CONFIG = TransformerConfig(7, block_count=2, width=8, head_count=2, mlp_width=12, context=5)


def block_of(config: TransformerConfig, **changes: Any) -> BlockParameters:
    """A block's parameters, all 0 but for what is given."""
    flat = np.zeros(element_count(block_shapes(config)))
    block = BlockParameters(*views(flat, 0, block_shapes(config)))
    for name, value in changes.items():
        getattr(block, name)[:] = value
    return block


def test_norm_by_hand() -> None:
    result, _ = norm_forward(np.array([[1.0, 3.0], [5.0, 5.0]]), np.array([2.0, 1.0]), np.array([0.0, 10.0]))
    scale = 1 / math.sqrt(1 + 1e-5)
    expected = np.array([[-2 * scale, 10 + scale], [0.0, 10.0]])
    np.testing.assert_allclose(result, expected, rtol=1e-15)


def test_gelu_by_hand() -> None:
    config = TransformerConfig(2, width=1, head_count=1, mlp_width=1)
    values = np.array([[-10.0], [-1.0], [0.0], [1.0], [10.0]])
    result, _ = mlp_forward(block_of(config, up_weights=1.0, down_weights=1.0, down_bias=0.5), values)
    exact = [0.5 + x * (0.5 + 0.5 * math.erf(x / math.sqrt(2))) for x in values[:, 0]]
    np.testing.assert_allclose(result[:, 0], exact, atol=5e-4)
    assert result[2, 0] == 0.5


def test_attention_by_hand() -> None:
    """With all scores equal, a token gets the mean of the values up to itself."""
    config = TransformerConfig(2, width=2, head_count=1, mlp_width=1)
    values = np.zeros((2, 6))
    values[:, 4:] = np.eye(2)
    block = block_of(config, qkv_weights=values, output_weights=np.eye(2), output_bias=[0.0, 100.0])
    rows = np.array([[2.0, 4.0], [4.0, 0.0], [6.0, -1.0], [9.0, 9.0], [1.0, 1.0], [2.0, 2.0]])
    result, _ = attention_forward(block, 1, rows, 2)
    expected = [[2, 104], [3, 102], [4, 101], [9, 109], [5, 105], [4, 104]]
    np.testing.assert_allclose(result, expected, rtol=1e-15)


def test_embedding_by_hand() -> None:
    token, position = np.array([[1.0], [2.0], [4.0]]), np.array([[10.0], [20.0], [30.0]])
    tokens = np.array([[2, 0], [2, 2]])
    rows = embedding_forward(EmbeddingParameters(token, position), tokens)
    assert rows.tolist() == [[14.0], [21.0], [14.0], [24.0]]
    to = EmbeddingParameters(np.full((3, 1), 9.0), np.full((3, 1), 9.0))
    embedding_backward(tokens, np.array([[1.0], [10.0], [100.0], [1000.0]]), to)
    assert to.token.tolist() == [[10.0], [0.0], [1101.0]]
    assert to.position.tolist() == [[101.0], [1010.0], [0.0]]


def test_cross_entropy_by_hand() -> None:
    logits = np.log(np.array([[[1.0, 3.0], [1.0, 1.0]]]))
    loss, gradient = cross_entropy(logits, np.array([[1, 0]]))
    assert loss == pytest.approx((math.log(4 / 3) + math.log(2)) / 2)
    np.testing.assert_allclose(gradient, [[[0.125, -0.125], [-0.25, 0.25]]], rtol=1e-15)
    huge, _ = cross_entropy(np.array([[[1e300, 0.0]]]), np.array([[0]]))
    assert huge == 0.0


def test_a_later_token_changes_nothing_before_it() -> None:
    (spec,) = cut(CONFIG)
    parameters = initial_parameters(spec, 0)
    tokens = np.random.default_rng(0).integers(0, 7, size=(3, 5))
    before, _ = shard_forward(spec, parameters, tokens)
    tokens[:, 3] = (tokens[:, 3] + 1) % 7
    after, _ = shard_forward(spec, parameters, tokens)
    assert before[:, :3].tobytes() == after[:, :3].tobytes()
    assert (before[:, 3:] != after[:, 3:]).any(axis=2).all()


def test_large_scores_do_not_overflow() -> None:
    (spec,) = cut(CONFIG)
    parameters = 300.0 * initial_parameters(spec, 0)
    tokens = np.random.default_rng(0).integers(0, 7, size=(3, 5))
    logits, cache = shard_forward(spec, parameters, tokens)
    loss, gradient = cross_entropy(logits, tokens)
    assert math.isfinite(loss)
    assert np.isfinite(shard_backward(spec, parameters, cache, gradient)[1]).all()


@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e308])
def test_kind_09_non_finite_comes_out_without_a_warning(poison: float) -> None:
    first, last = cut(CONFIG, (1,))
    tokens = np.random.default_rng(0).integers(0, 7, size=(3, 5))
    own = [initial_parameters(spec, 0) for spec in (first, last)]
    own[0][-1] = poison
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        hidden, cache = shard_forward(first, own[0], tokens)
        logits, last_cache = shard_forward(last, own[1], hidden)
        loss, gradient = cross_entropy(logits, tokens)
        into, last_gradient = shard_backward(last, own[1], last_cache, gradient)
        assert into is not None
        shard_backward(first, own[0], cache, into)
    if poison != 1e308:
        assert not np.isfinite(hidden).all()
        assert not math.isfinite(loss)
        assert not np.isfinite(last_gradient).all()


def test_wrong_inputs_are_refused() -> None:
    first, last = cut(CONFIG, (1,))
    own = [initial_parameters(spec, 0) for spec in (first, last)]
    tokens: Any = np.zeros((3, 5), dtype=np.int64)
    hidden: Any = np.zeros((3, 5, 8))
    bad: Any
    bad_tokens = (tokens - 1, tokens + 7, tokens[0], tokens[:0], tokens[:, :0], np.zeros((3, 6), int), tokens * 1.0)
    for bad in (*bad_tokens, tokens.astype(bool)):
        with pytest.raises(ContractError):
            shard_forward(first, own[0], bad)
    for bad in (hidden[0], hidden[:, :, :7], hidden[:0], hidden.astype(np.float32), np.zeros((3, 6, 8)), tokens):
        with pytest.raises(ContractError):
            shard_forward(last, own[1], bad)
    whole: Any = own[1]
    for bad in (own[0], whole[:-1], whole.astype(np.float32), np.zeros(2 * len(whole))[::2], whole[None]):
        with pytest.raises(ContractError):
            shard_forward(last, bad, hidden)
    _, cache = shard_forward(last, own[1], hidden)
    for bad in (hidden, np.zeros((3, 5, 6)), np.zeros((2, 5, 7)), np.zeros((3, 5, 7), dtype=np.float32)):
        with pytest.raises(ContractError):
            shard_backward(last, own[1], cache, bad)
    for logits, targets in (
        (hidden, tokens + 8),
        (hidden, tokens - 1),
        (hidden, tokens[:2]),
        (hidden[0], tokens),
        (hidden, tokens * 1.0),
        (hidden[:0], tokens[:0]),
        (hidden.astype(np.float32), tokens),
    ):
        with pytest.raises(ContractError):
            cross_entropy(logits, targets)


def test_impossible_sizes_are_refused() -> None:
    for sizes in (
        {"vocabulary_size": 1},
        {"vocabulary_size": True},
        {"width": 0},
        {"width": 30},
        {"head_count": 0},
        {"mlp_width": -1},
        {"context": 0},
        {"block_count": 0},
        {"block_count": 2.0},
    ):
        with pytest.raises(ConfigurationError, match="transformer"):
            TransformerConfig(**{"vocabulary_size": 5, **sizes})  # type: ignore[arg-type]


def test_arguments_are_left_alone_and_layout_does_not_change_bits() -> None:
    first, last = cut(CONFIG, (1,))
    own = initial_parameters(last, 0)
    hidden = np.random.default_rng(0).normal(size=(3, 5, 8))
    own.setflags(write=False)
    hidden.setflags(write=False)
    logits, cache = shard_forward(last, own, hidden)
    _, gradient = cross_entropy(logits, np.ones((3, 5), dtype=np.int64))
    gradient.setflags(write=False)
    into, expected = shard_backward(last, own, cache, gradient)
    assert into is not None
    shifted = np.frombuffer(b"\0" + hidden.tobytes(), dtype=np.uint8)[1:].view(np.float64).reshape(hidden.shape)
    moved = np.concatenate([np.zeros(1), hidden.reshape(-1)])[1:].reshape(hidden.shape)
    for same in (np.asfortranarray(hidden), shifted, moved):
        again, cache = shard_forward(last, own, same)
        assert again.tobytes() == logits.tobytes()
        into_again, gradient_again = shard_backward(last, own, cache, np.asfortranarray(gradient))
        assert into_again is not None
        assert into_again.tobytes() == into.tobytes()
        assert gradient_again.tobytes() == expected.tobytes()
    tokens = np.ones((3, 5), dtype=np.int64)
    _, cache = shard_forward(first, initial_parameters(first, 0), tokens)
    tokens[:] = 6
    assert cache.tokens is not None
    assert (cache.tokens == 1).all()
