"""Layer norm over the last axis, forward and backward.

    y = (x - mean) / sqrt(variance + 1e-5) * gain + bias        mean and variance over the d elements of a row

Source: Ba, Kiros, Hinton 2016; the variance is the biased one. Rows are summed by BLAS (a product with ones).
"""

from typing import NamedTuple

import numpy as np

from training.arrays import FloatArray
from training.transformer.vectors import average, ones

_EPSILON = 1e-5


class NormCache(NamedTuple):
    """Normalised rows (N, d), and 1 / sqrt(variance + epsilon) of each, (N, 1)."""

    normalised: FloatArray
    inverse_deviation: FloatArray


def norm_forward(rows: FloatArray, gain: FloatArray, bias: FloatArray) -> tuple[FloatArray, NormCache]:
    """Norm of each of the rows (N, d); gain and bias (d)."""
    mean = average(rows.shape[1])
    normalised = rows - (rows @ mean)[:, None]
    result = normalised * normalised
    deviation = result @ mean
    deviation += _EPSILON
    np.sqrt(deviation, out=deviation)
    inverse_deviation = np.divide(1.0, deviation, out=deviation)[:, None]
    normalised *= inverse_deviation
    np.multiply(normalised, gain, out=result)
    result += bias
    return result, NormCache(normalised, inverse_deviation)


def norm_backward(
    cache: NormCache, gain: FloatArray, gradient: FloatArray, to_gain: FloatArray, to_bias: FloatArray
) -> FloatArray:
    """Gradient with respect to the rows, (N, d); writes those of gain and bias, (d), into `to_gain` and `to_bias`."""
    normalised, inverse_deviation = cache
    mean, rows = average(gradient.shape[1]), ones(len(gradient))
    work = gradient * normalised
    np.matmul(rows, work, out=to_gain)
    np.matmul(rows, gradient, out=to_bias)
    work *= gain
    along = (work @ mean)[:, None]
    np.multiply(normalised, along, out=work)
    result = gradient * gain
    shift = (result @ mean)[:, None]
    result -= shift
    result -= work
    result *= inverse_deviation
    return result
