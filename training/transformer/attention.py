"""Causal multi-head self-attention, forward and backward.

    scores = q k^T / sqrt(e) for keys no later than the query;  weights = softmax over keys
    result = (weights v) Wo + bo

Source: Vaswani et al. 2017. Scores are held transposed, (b, h, keys, queries), since numpy reduces the second last
axis much faster, and keys later than the query are left out instead of set to -inf, on which exp is slow. Scores are
never divided by their sums: where E = exp(scores - max) and s its sum over the keys,

    weights v = (E v) / s       d scores = E * (dO/s v^T - rowsum(dO * O)/s)       (Dao et al. 2022 for the row sum)
"""

import functools
import math
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray
from training.transformer.layout import BlockParameters
from training.transformer.vectors import ones

Mask = npt.NDArray[np.bool_]


class AttentionCache(NamedTuple):
    """rows (N, d); qkv (b, t, 3, h, e); scaled queries (b, h, e, t); E (b, h, t, t); 1/s (b, h, 1, t); mixed (N, d)."""

    rows: FloatArray
    qkv: FloatArray
    queries: FloatArray
    exponentials: FloatArray
    inverse_sums: FloatArray
    mixed: FloatArray


def attention_forward(
    parameters: BlockParameters, head_count: int, rows: FloatArray, contexts: int
) -> tuple[FloatArray, AttentionCache]:
    """Result (N, d) for the rows (N, d), which are `contexts` contexts of equal length one after the other."""
    tokens = len(rows) // contexts
    head_width = rows.shape[1] // head_count
    flat = rows @ parameters.qkv_weights
    flat += parameters.qkv_bias
    qkv = flat.reshape(contexts, tokens, 3, head_count, head_width)
    queries = np.empty((contexts, head_count, head_width, tokens))
    np.multiply(qkv[:, :, 0].transpose(0, 2, 3, 1), 1.0 / math.sqrt(head_width), out=queries)
    scores = np.matmul(_by_head(qkv, 1), queries)
    allowed, later = _order(tokens)
    scores -= np.maximum.reduce(scores, axis=-2, keepdims=True, where=allowed, initial=-np.inf)
    np.exp(scores, out=scores, where=allowed)
    np.copyto(scores, 0.0, where=later)
    inverse_sums = np.matmul(ones(tokens).reshape(1, tokens), scores)
    np.divide(1.0, inverse_sums, out=inverse_sums)
    mixed = np.empty((contexts, tokens, head_count, head_width))
    np.matmul(scores.swapaxes(-1, -2), _by_head(qkv, 2), out=mixed.transpose(0, 2, 1, 3))
    mixed *= inverse_sums.transpose(0, 3, 1, 2)
    mixed_rows = mixed.reshape(rows.shape)
    result = mixed_rows @ parameters.output_weights
    result += parameters.output_bias
    return result, AttentionCache(rows, qkv, queries, scores, inverse_sums, mixed_rows)


def attention_backward(
    parameters: BlockParameters, cache: AttentionCache, gradient: FloatArray, to: BlockParameters
) -> FloatArray:
    """Gradient with respect to the rows, (N, d), for that of the result, (N, d); writes the parameters' into `to`."""
    contexts, tokens, _, head_count, head_width = cache.qkv.shape
    rows = ones(len(gradient))
    np.matmul(cache.mixed.T, gradient, out=to.output_weights)
    np.matmul(rows, gradient, out=to.output_bias)
    mixed_gradient = (gradient @ parameters.output_weights.T).reshape(contexts, tokens, head_count, head_width)
    along = np.vecdot(mixed_gradient, cache.mixed.reshape(mixed_gradient.shape)).transpose(0, 2, 1)[:, :, None, :]
    along = along * cache.inverse_sums
    scaled = np.empty((contexts, head_count, head_width, tokens))
    np.multiply(mixed_gradient.transpose(0, 2, 3, 1), cache.inverse_sums, out=scaled)

    qkv_gradient = np.empty_like(cache.qkv)
    np.matmul(cache.exponentials, scaled.swapaxes(-1, -2), out=_by_head(qkv_gradient, 2))
    scores_gradient = np.matmul(_by_head(cache.qkv, 2), scaled)
    scores_gradient -= along
    scores_gradient *= cache.exponentials
    np.matmul(scores_gradient, cache.queries.swapaxes(-1, -2), out=_by_head(qkv_gradient, 1))
    np.matmul(scores_gradient.swapaxes(-1, -2), _by_head(cache.qkv, 1), out=_by_head(qkv_gradient, 0))
    qkv_gradient[:, :, 0] *= 1.0 / math.sqrt(head_width)

    flat = qkv_gradient.reshape(len(gradient), -1)
    np.matmul(cache.rows.T, flat, out=to.qkv_weights)
    np.matmul(rows, flat, out=to.qkv_bias)
    return flat @ parameters.qkv_weights.T


def _by_head(qkv: FloatArray, part: int) -> FloatArray:
    """Queries (part 0), keys (1) or values (2) as a view (b, h, t, e)."""
    return qkv[:, :, part].transpose(0, 2, 1, 3)


@functools.lru_cache(maxsize=8)
def _order(tokens: int) -> tuple[Mask, Mask]:
    """Where a key (row) is no later than the query (column), and where it is later; (t, t) each, read-only."""
    allowed = np.triu(np.ones((tokens, tokens), dtype=np.bool_))
    later = ~allowed
    allowed.setflags(write=False)
    later.setflags(write=False)
    return allowed, later
