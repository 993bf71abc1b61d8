"""The final norm, the head (no bias, its own weights) and the loss; forward and backward."""

from typing import NamedTuple

import numpy as np

from training.arrays import FLOAT64, FloatArray, IntArray
from training.errors import ContractError
from training.transformer.layout import HeadParameters
from training.transformer.norm import NormCache, norm_backward, norm_forward


class HeadCache(NamedTuple):
    """What `head_backward` needs of the forward pass; normed (N, d)."""

    norm: NormCache
    normed: FloatArray


def head_forward(parameters: HeadParameters, rows: FloatArray) -> tuple[FloatArray, HeadCache]:
    """Logits (N, v) for the rows (N, d)."""
    normed, norm = norm_forward(rows, parameters.norm_gain, parameters.norm_bias)
    return normed @ parameters.weights, HeadCache(norm, normed)


def head_backward(parameters: HeadParameters, cache: HeadCache, gradient: FloatArray, to: HeadParameters) -> FloatArray:
    """Gradient with respect to the rows, (N, d), for that of the logits, (N, v); writes the parameters' into `to`."""
    np.matmul(cache.normed.T, gradient, out=to.weights)
    normed_gradient = gradient @ parameters.weights.T
    return norm_backward(cache.norm, parameters.norm_gain, normed_gradient, to.norm_gain, to.norm_bias)


def cross_entropy(logits: FloatArray, targets: IntArray) -> tuple[float, FloatArray]:
    """Mean cross-entropy in nats over all tokens of a micro-batch, and its gradient in the logits, float64 (b, t, v).

    logits float64 (b, t, v), targets int64 (b, t). Raises ContractError on another shape or dtype, or a target outside
    of 0 .. v-1. Source: dL/dlogits = (softmax(logits) - onehot(targets)) / N.
    """
    if logits.dtype != FLOAT64 or logits.ndim != 3 or targets.shape != logits.shape[:2] or targets.size == 0:
        raise ContractError(
            f"logits {logits.dtype} {logits.shape} and targets {targets.shape} do not fit:"
            " expected float64 (b, t, v) and (b, t), none of them 0"
        )
    require_tokens(targets, logits.shape[2], "targets")
    count = targets.size
    with np.errstate(all="ignore"):
        work = logits - np.maximum.reduce(logits, axis=2, keepdims=True)
        flat = work.reshape(-1)
        at_target = np.arange(0, flat.size, logits.shape[2])
        at_target += targets.reshape(-1)
        shifted = flat[at_target]
        np.exp(work, out=work)
        totals = np.add.reduce(work, axis=2, keepdims=True)
        work /= totals
        flat[at_target] -= 1.0
        work /= count
        loss = float(np.add.reduce(np.log(totals.reshape(-1)) - shifted)) / count
    return loss, work


def require_tokens(tokens: IntArray, vocabulary_size: int, what: str) -> None:
    """Raise ContractError unless these are whole numbers in 0 .. vocabulary_size-1, at least one."""
    if tokens.dtype.kind != "i" or tokens.size == 0:
        raise ContractError(f"{what} are {tokens.dtype} {tokens.shape}; expected int64, at least one")
    low, high = int(tokens.min()), int(tokens.max())
    if low < 0 or high >= vocabulary_size:
        raise ContractError(f"{what} reach from {low} to {high}; the model's vocabulary is 0 .. {vocabulary_size - 1}")
