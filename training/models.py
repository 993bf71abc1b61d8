"""Softmax regression and a one-hidden-layer tanh MLP: loss, gradient and accuracy, by hand, in float64.

Order of the flat parameter vector (every matrix row-major; d features, c classes, h hidden units):

    softmax   weights (d, c), bias (c)                              d*c + c elements
    mlp       hidden weights (d, h), hidden bias (h),
              output weights (h, c), output bias (c)                d*h + h + h*c + c elements

So softmax with 8 features and 4 classes is (8 + 1) * 4 float64 = 288 B.

Duties of the caller: labels lie in 0 .. c-1 (`Dataset` guarantees it; it is not checked again on this hot
path), and BLAS runs single-threaded where bitwise equality is wanted. Overflow is no error here: whatever is
non-finite comes out as non-finite and without a warning; the caller decides what a non-finite gradient means.
"""

import math

import numpy as np

from training.arrays import FLOAT64, FloatArray, IntArray
from training.config import ModelConfig
from training.errors import ContractError

_SOFTMAX_SCALE = 0.01  # small: early probabilities are near uniform, yet no two parameters are equal
_BIAS_SCALE = 0.01


def parameter_count(config: ModelConfig) -> int:
    """Length P of the flat parameter vector."""
    d, c, h = config.feature_count, config.class_count, config.hidden_count
    return d * c + c if config.kind == "softmax" else d * h + h + h * c + c


def initial_parameters(config: ModelConfig, seed: int) -> FloatArray:
    """Seeded starting point, float64 (P,), from a generator of its own.

    Softmax: N(0, 0.01^2) throughout. MLP: weights N(0, 1/fan_in) (LeCun 1998), biases N(0, 0.01^2).
    """
    normal: FloatArray = np.random.default_rng(seed).standard_normal(parameter_count(config))
    if config.kind == "softmax":
        normal *= _SOFTMAX_SCALE
        return normal
    d, c, h = config.feature_count, config.class_count, config.hidden_count
    scales = [1 / math.sqrt(d), _BIAS_SCALE, 1 / math.sqrt(h), _BIAS_SCALE]
    normal *= np.repeat(scales, [d * h, h, h * c, c])
    return normal


def loss_and_gradient(
    config: ModelConfig, parameters: FloatArray, features: FloatArray, labels: IntArray
) -> tuple[float, FloatArray]:
    """Mean cross-entropy in nats over the n >= 1 rows, and its flat gradient, float64 (P,).

    features float64 (n, d), labels int64 (n,). Raises ContractError on another shape or dtype.
    Source: dL/dlogits = (softmax(logits) - onehot(labels)) / n, then the chain rule.
    """
    features = _checked(config, parameters, features, labels)
    gradient = np.empty_like(parameters)
    with np.errstate(all="ignore"):
        if config.kind == "softmax":
            loss = _softmax_step(config, parameters, features, labels, gradient)
        else:
            loss = _mlp_step(config, parameters, features, labels, gradient)
    return loss, gradient


def evaluate(
    config: ModelConfig, parameters: FloatArray, features: FloatArray, labels: IntArray
) -> tuple[float, float]:
    """Mean cross-entropy in nats, and the share of rows (0 .. 1) whose largest logit is the label's.

    Shapes and errors as in `loss_and_gradient`. Ties go to the lowest class; a row with NaN counts as wrong.
    """
    features = _checked(config, parameters, features, labels)
    with np.errstate(all="ignore"):
        logits = _logits(config, parameters, features)
        hits = (logits.argmax(axis=1) == labels) & ~np.isnan(logits).any(axis=1)
        loss = _cross_entropy_errors(logits, labels)
    return loss, float(np.count_nonzero(hits)) / len(labels)


def _checked(config: ModelConfig, parameters: FloatArray, features: FloatArray, labels: IntArray) -> FloatArray:
    """Refuse wrong shapes; return the features C-contiguous, since another layout gives other bits in BLAS."""
    rows = labels.shape[0] if labels.ndim == 1 else 0
    if rows < 1 or features.shape != (rows, config.feature_count):
        raise ContractError(
            f"features {features.shape} and labels {labels.shape} do not fit: expected (n, {config.feature_count})"
            " and (n,) with n of at least 1; a worker without samples has no gradient"
        )
    if parameters.shape != (parameter_count(config),):
        raise ContractError(f"parameters {parameters.shape} do not fit {config}: expected ({parameter_count(config)},)")
    if parameters.dtype != FLOAT64 or features.dtype != FLOAT64 or labels.dtype.kind != "i":
        raise ContractError(
            f"dtypes parameters {parameters.dtype}, features {features.dtype}, labels {labels.dtype}:"
            " expected float64, float64 and int64"
        )
    return features if features.flags.c_contiguous else np.ascontiguousarray(features)


def _layers(config: ModelConfig, flat: FloatArray) -> tuple[FloatArray, FloatArray, FloatArray, FloatArray]:
    """Views of the MLP's four parts in `flat`."""
    d, c, h = config.feature_count, config.class_count, config.hidden_count
    output = d * h + h
    return (
        flat[: d * h].reshape(d, h),
        flat[d * h : output],
        flat[output : output + h * c].reshape(h, c),
        flat[output + h * c :],
    )


def _logits(config: ModelConfig, parameters: FloatArray, features: FloatArray) -> FloatArray:
    if config.kind == "softmax":
        weight_count = config.feature_count * config.class_count
        logits: FloatArray = features @ parameters[:weight_count].reshape(config.feature_count, config.class_count)
        logits += parameters[weight_count:]
        return logits
    hidden_weights, hidden_bias, output_weights, output_bias = _layers(config, parameters)
    hidden = features @ hidden_weights
    hidden += hidden_bias
    np.tanh(hidden, out=hidden)
    logits = hidden @ output_weights
    logits += output_bias
    return logits


def _softmax_step(
    config: ModelConfig, parameters: FloatArray, features: FloatArray, labels: IntArray, gradient: FloatArray
) -> float:
    """Write the gradient, return the loss."""
    weight_count = config.feature_count * config.class_count
    errors = _logits(config, parameters, features)
    loss = _cross_entropy_errors(errors, labels)
    weights = gradient[:weight_count].reshape(config.feature_count, config.class_count)
    np.matmul(features.T, errors, out=weights)
    np.add.reduce(errors, axis=0, out=gradient[weight_count:])
    return loss


def _mlp_step(
    config: ModelConfig, parameters: FloatArray, features: FloatArray, labels: IntArray, gradient: FloatArray
) -> float:
    """Write the gradient, return the loss. tanh' = 1 - tanh^2."""
    hidden_weights, hidden_bias, output_weights, output_bias = _layers(config, parameters)
    to_hidden_weights, to_hidden_bias, to_output_weights, to_output_bias = _layers(config, gradient)
    hidden = features @ hidden_weights
    hidden += hidden_bias
    np.tanh(hidden, out=hidden)
    errors = hidden @ output_weights
    errors += output_bias
    loss = _cross_entropy_errors(errors, labels)
    np.matmul(hidden.T, errors, out=to_output_weights)
    np.add.reduce(errors, axis=0, out=to_output_bias)
    hidden_errors = errors @ output_weights.T
    hidden_errors *= 1.0 - hidden * hidden
    np.matmul(features.T, hidden_errors, out=to_hidden_weights)
    np.add.reduce(hidden_errors, axis=0, out=to_hidden_bias)
    return loss


def _cross_entropy_errors(logits: FloatArray, labels: IntArray) -> float:
    """Return the mean of log(sum(exp(z))) - z[label]; overwrite `logits` with (softmax - onehot) / n.

    The row's maximum is taken off first, which changes neither and keeps exp within range.
    """
    rows = len(labels)
    at_label = np.arange(0, logits.size, logits.shape[1])
    at_label += labels
    flat = logits.reshape(-1)  # a view: logits is fresh from a matmul
    logits -= np.maximum.reduce(logits, axis=1, keepdims=True)
    shifted = flat[at_label]
    np.exp(logits, out=logits)
    totals = np.add.reduce(logits, axis=1, keepdims=True)
    logits /= totals
    flat[at_label] -= 1.0
    logits /= rows
    return float(np.add.reduce(np.log(totals[:, 0]) - shifted)) / rows
