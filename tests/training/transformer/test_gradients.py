"""The hand-written backward against autograd over a forward pass of its own, and against finite differences."""

from __future__ import annotations

import math
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad, value_and_grad

from training.transformer.config import TransformerConfig
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.layout import block_shapes, embedding_shapes, head_shapes
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import cut
from training.transformer.step import central_gradient, central_loss

MODELS = (
    TransformerConfig(7, block_count=2, width=8, head_count=2, mlp_width=12, context=5),
    TransformerConfig(3, block_count=1, width=3, head_count=1, mlp_width=1, context=1),
    TransformerConfig(11, block_count=3, width=6, head_count=6, mlp_width=4, context=9),
)


def tokens(config: TransformerConfig, contexts: int, length: int, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    drawn = generator.integers(0, config.vocabulary_size, size=(contexts, length + 1))
    return drawn[:, :-1], drawn[:, 1:]


def somewhere(config: TransformerConfig, seed: int = 1) -> Any:
    """Parameters that are nowhere special: no bias is 0, no gain 1."""
    (spec,) = cut(config)
    return initial_parameters(spec, seed) + 0.3 * np.random.default_rng(seed).normal(size=spec.parameter_count)


class Reader:
    """Takes arrays of given shapes off a flat vector."""

    def __init__(self, flat: Any) -> None:
        self.flat, self.at = flat, 0

    def take(self, shapes: Any) -> list[Any]:
        found = []
        for shape in shapes:
            stop = self.at + math.prod(shape)
            found.append(anp.reshape(self.flat[self.at : stop], shape))
            self.at = stop
        return found


def norm(x: Any, gain: Any, bias: Any) -> Any:
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    return centred / anp.sqrt(anp.mean(centred**2, axis=-1, keepdims=True) + 1e-5) * gain + bias


def attention(x: Any, heads: int, qkv: Any, qkv_bias: Any, out: Any, out_bias: Any) -> Any:
    """Head by head, key by key masked, normalised weights: nothing of production's shortcuts."""
    length, width = x.shape[1:]
    projected = anp.dot(x, qkv) + qkv_bias
    size, results = width // heads, []
    for head in range(heads):
        query, key, value = (
            projected[:, :, part * width + head * size : part * width + (head + 1) * size] for part in range(3)
        )
        scores = anp.einsum("bqe,bke->bqk", query, key) / math.sqrt(size)
        allowed = np.tril(np.ones((length, length)))
        shifted = anp.where(allowed > 0, scores, -1e30)
        weights = anp.exp(shifted - anp.max(shifted, axis=-1, keepdims=True))
        results.append(anp.einsum("bqk,bke->bqe", weights / anp.sum(weights, axis=-1, keepdims=True), value))
    return anp.dot(anp.concatenate(results, axis=-1), out) + out_bias


def reference_loss(flat: Any, config: TransformerConfig, inputs: Any, targets: Any) -> Any:
    """Mean cross-entropy by an independent forward pass that autograd can differentiate."""
    reader = Reader(flat)
    token, position = reader.take(embedding_shapes(config))
    x = token[inputs] + position[: inputs.shape[1]]
    for _ in range(config.block_count):
        gain1, bias1, qkv, qkv_bias, out, out_bias, gain2, bias2, up, up_bias, down, down_bias = reader.take(
            block_shapes(config)
        )
        x = x + attention(norm(x, gain1, bias1), config.head_count, qkv, qkv_bias, out, out_bias)
        raised = anp.dot(norm(x, gain2, bias2), up) + up_bias
        inner = math.sqrt(2 / math.pi) * (raised + 0.044715 * raised**3)
        x = x + anp.dot(0.5 * raised * (1 + anp.tanh(inner)), down) + down_bias
    gain, bias, head = reader.take(head_shapes(config))
    logits = anp.dot(norm(x, gain, bias), head)
    one_hot = np.eye(config.vocabulary_size)[targets]
    shifted = logits - anp.max(logits, axis=-1, keepdims=True)
    return anp.mean(anp.log(anp.sum(anp.exp(shifted), axis=-1)) - anp.sum(shifted * one_hot, axis=-1))


@pytest.mark.parametrize("config", MODELS)
@pytest.mark.parametrize("micro_batches", [1, 2, 3])
def test_loss_and_gradient_equal_autograd(config: TransformerConfig, micro_batches: int) -> None:
    inputs, targets = tokens(config, 3, config.context)
    parameters = somewhere(config)
    loss, gradient = central_gradient(cut(config)[0], parameters, inputs, targets, micro_batches)
    expected_loss, expected = value_and_grad(reference_loss)(parameters, config, inputs, targets)
    assert loss == pytest.approx(float(expected_loss), rel=1e-12)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * max(1.0, np.abs(expected).max()))


def test_contexts_shorter_than_the_longest_and_tokens_that_do_not_occur() -> None:
    config = MODELS[2]
    inputs, targets = tokens(config, 2, 4)
    inputs = inputs % 3
    parameters = somewhere(config)
    _, gradient = central_gradient(cut(config)[0], parameters, inputs, targets, 1)
    expected = grad(reference_loss)(parameters, config, inputs, targets)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-12 * np.abs(expected).max())
    token, position = Reader(gradient).take(embedding_shapes(config))
    assert not token[3:].any()
    assert not position[4:].any()


def test_gradient_equals_finite_differences() -> None:
    config = MODELS[0]
    (spec,) = cut(config)
    inputs, targets = tokens(config, 2, config.context)
    parameters = somewhere(config)
    gradient = central_gradient(spec, parameters, inputs, targets, 1)[1]
    for index in range(0, spec.parameter_count, 3):
        shift = np.zeros_like(parameters)
        shift[index] = 1e-5
        above = central_loss(spec, parameters + shift, inputs, targets)
        below = central_loss(spec, parameters - shift, inputs, targets)
        assert gradient[index] == pytest.approx((above - below) / 2e-5, abs=1e-7)


def test_gradient_of_a_boundary_equals_finite_differences() -> None:
    config = MODELS[0]
    first, last = cut(config, (1,))
    inputs, targets = tokens(config, 2, config.context)
    parameters = somewhere(config)
    own = parameters[first.parameter_count :]
    hidden, _ = shard_forward(first, parameters[: first.parameter_count], inputs)

    def loss_of(values: Any) -> float:
        return cross_entropy(shard_forward(last, own, values)[0], targets)[0]

    logits, cache = shard_forward(last, own, hidden)
    gradient, _ = shard_backward(last, own, cache, cross_entropy(logits, targets)[1])
    assert gradient is not None
    assert gradient.shape == hidden.shape
    for index in np.ndindex(hidden.shape):
        shift = np.zeros_like(hidden)
        shift[index] = 1e-5
        assert gradient[index] == pytest.approx((loss_of(hidden + shift) - loss_of(hidden - shift)) / 2e-5, abs=1e-7)
