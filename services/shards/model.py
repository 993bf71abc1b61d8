"""The verifier's own transformer: forward by autograd's numpy, derivatives by autograd. Nothing of `training` is used.

Order of a shard's flat vector, matrices row-major; v vocabulary, d width, m MLP width: embedding (first shard): token
(v, d), position (context, d); per block: norm1 gain (d), bias (d), qkv weights (d, 3d), bias (3d), output weights (d,
d), bias (d), norm2 gain (d), bias (d), up weights (d, m), bias (m), down weights (m, d), bias (d); head (last shard):
gain (d), bias (d), weights (d, v). Queries, keys, values side by side, head after head within each.

**Noise floor.** A value that comes out of L layers of sums over at most K terms differs between two orders of the same
arithmetic by at most a small multiple of eps * L * K * (largest magnitude in the array), eps = 2^-52, with L the blocks
of the shard plus one and K the larger of width, MLP width and tokens. The tolerance is `TOLERANCE_FLOORS` floors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import numpy.typing as npt

from services.messages import Array

EPS = 2.0**-52
TOLERANCE_FLOORS = 4.0
GELU_C, GELU_A = math.sqrt(2.0 / math.pi), 0.044715
NORM_EPSILON = 1e-5

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True)
class Sizes:
    """The model, as the run's configuration has it."""

    vocabulary: int
    blocks: int
    width: int
    heads: int
    mlp: int
    context: int

    @classmethod
    def of(cls, model: Mapping[str, Any]) -> Sizes:
        return cls(
            model["vocabulary_size"], model["block_count"], model["width"], model["head_count"], model["mlp_width"],
            model["context"],
        )  # fmt: skip


class ShardModel:
    """Blocks [first, stop) of the model; shard `index` (from 0) of `count`."""

    def __init__(self, sizes: Sizes, first: int, stop: int, index: int, count: int) -> None:
        self.sizes, self.blocks = sizes, stop - first
        self.is_first, self.is_last = index == 0, index == count - 1

    @property
    def floor_factor(self) -> float:
        """The noise floor of an array, over its largest magnitude."""
        longest = max(self.sizes.width, self.sizes.mlp, self.sizes.context)
        return EPS * (self.blocks + 1) * longest

    def forward(self, flat: Any, given: Any) -> Any:
        """Hidden values or logits (b, t, ·) for tokens or hidden values."""
        take = _taker(flat)
        sizes, d = self.sizes, self.sizes.width
        if self.is_first:
            token, position = take(sizes.vocabulary, d), take(sizes.context, d)
            x = token[given] + position[: given.shape[1]]
        else:
            x = given
        for _ in range(self.blocks):
            x = self._block(x, take)
        if self.is_last:
            normed = _norm(x, take(d), take(d))
            return anp.dot(normed, take(d, sizes.vocabulary))
        return x

    def _block(self, x: Any, take: Callable[..., Any]) -> Any:
        d, m = self.sizes.width, self.sizes.mlp
        normed = _norm(x, take(d), take(d))
        qkv = anp.dot(normed, take(d, 3 * d)) + take(3 * d)
        mixed = self._attention(qkv)
        x = x + anp.dot(mixed, take(d, d)) + take(d)
        normed = _norm(x, take(d), take(d))
        raised = anp.dot(normed, take(d, m)) + take(m)
        active = 0.5 * raised * (1.0 + anp.tanh(GELU_C * (raised + GELU_A * raised * raised * raised)))
        return x + anp.dot(active, take(m, d)) + take(d)

    def _attention(self, qkv: Any) -> Any:
        contexts, tokens, _ = qkv.shape
        heads, d = self.sizes.heads, self.sizes.width
        split = anp.reshape(qkv, (contexts, tokens, 3, heads, d // heads))
        q, k, v = (anp.transpose(split[:, :, part], (0, 2, 1, 3)) for part in range(3))
        scores = anp.matmul(q, anp.swapaxes(k, -1, -2)) / math.sqrt(d // heads)
        scores = anp.where(np.tril(np.ones((tokens, tokens), dtype=bool)), scores, -1e30)
        scores = scores - anp.max(scores, axis=-1, keepdims=True)
        weights = anp.exp(scores)
        weights = weights / anp.sum(weights, axis=-1, keepdims=True)
        return anp.reshape(anp.transpose(anp.matmul(weights, v), (0, 2, 1, 3)), (contexts, tokens, d))

    # ------------------------------------------------------------ questions

    def back(self, flat: Array, given: Any, output_gradient: Array) -> tuple[Array, Array, Array | None]:
        """Output, and the gradients in parameters and (but for the first shard) in the input."""
        if self.is_first:
            vjp, output = autograd.make_vjp(lambda p: self.forward(p, given))(flat)
            return output, vjp(output_gradient), None
        vjp, output = autograd.make_vjp(lambda both: self.forward(both[0], both[1]))(
            autograd.builtins.tuple((flat, given))
        )
        parameters, inputs = vjp(output_gradient)
        return output, parameters, inputs

    def loss_back(self, flat: Array, given: Any, targets: Ids) -> tuple[float, Array, Array | None]:
        """Mean cross-entropy at the last shard, and its gradients in parameters and input."""
        if self.is_first:
            loss, gradient = autograd.value_and_grad(lambda p: _cross_entropy(self.forward(p, given), targets))(flat)
            return float(loss), gradient, None
        both = autograd.builtins.tuple((flat, given))
        question = autograd.value_and_grad(lambda b: _cross_entropy(self.forward(b[0], b[1]), targets))
        loss, (parameters, inputs) = question(both)
        return float(loss), parameters, inputs


def _taker(flat: Any) -> Callable[..., Any]:
    """Hands out consecutive pieces of the flat vector in the shapes that are asked for."""
    offset = 0

    def take(*shape: int) -> Any:
        nonlocal offset
        start, offset = offset, offset + math.prod(shape)
        return anp.reshape(flat[start:offset], shape)

    return take


def _norm(x: Any, gain: Any, bias: Any) -> Any:
    centred = x - anp.mean(x, axis=-1, keepdims=True)
    variance = anp.mean(centred * centred, axis=-1, keepdims=True)
    return centred / anp.sqrt(variance + NORM_EPSILON) * gain + bias


def _cross_entropy(logits: Any, targets: Ids) -> Any:
    shifted = logits - anp.max(logits, axis=-1, keepdims=True)
    normaliser = anp.log(anp.sum(anp.exp(shifted), axis=-1))
    contexts, tokens = targets.shape
    chosen = shifted[np.arange(contexts)[:, None], np.arange(tokens)[None, :], targets]
    return anp.mean(normaliser - chosen)
