"""The MLP of a block: up, GELU, down; forward and backward.

    gelu(x) = x/2 * (1 + tanh(c * (x + a x^3)))     c = sqrt(2 / pi), a = 0.044715

Source: Hendrycks and Gimpel 2016, the tanh form, since numpy has no error function.
"""

import math
from typing import NamedTuple

import numpy as np

from training.arrays import FloatArray
from training.transformer.layout import BlockParameters
from training.transformer.vectors import ones

_C = math.sqrt(2.0 / math.pi)
_A = 0.044715


class MlpCache(NamedTuple):
    """Input (N, d), before the GELU (N, m), its tanh (N, m), after it (N, m)."""

    rows: FloatArray
    raised: FloatArray
    tanh: FloatArray
    activated: FloatArray


def mlp_forward(parameters: BlockParameters, rows: FloatArray) -> tuple[FloatArray, MlpCache]:
    """Result (N, d) for the rows (N, d)."""
    raised = rows @ parameters.up_weights
    raised += parameters.up_bias
    tanh = raised * raised
    tanh *= _A * _C
    tanh += _C
    tanh *= raised
    np.tanh(tanh, out=tanh)
    activated = tanh + 1.0
    activated *= raised
    activated *= 0.5
    result = activated @ parameters.down_weights
    result += parameters.down_bias
    return result, MlpCache(rows, raised, tanh, activated)


def mlp_backward(parameters: BlockParameters, cache: MlpCache, gradient: FloatArray, to: BlockParameters) -> FloatArray:
    """Gradient with respect to the rows, (N, d), for that of the result, (N, d); writes the parameters' into `to`."""
    rows = ones(len(gradient))
    np.matmul(cache.activated.T, gradient, out=to.down_weights)
    np.matmul(rows, gradient, out=to.down_bias)
    raised_gradient = gradient @ parameters.down_weights.T
    raised_gradient *= _gelu_slope(cache.raised, cache.tanh)
    np.matmul(cache.rows.T, raised_gradient, out=to.up_weights)
    np.matmul(rows, raised_gradient, out=to.up_bias)
    return raised_gradient @ parameters.up_weights.T


def _gelu_slope(raised: FloatArray, tanh: FloatArray) -> FloatArray:
    """gelu'(x) = (1 + tanh)/2 + x/2 * (1 - tanh^2) * c * (1 + 3 a x^2)."""
    slope = raised * raised
    slope *= 3.0 * _A * _C * 0.5
    slope += _C * 0.5
    slope *= raised
    work = tanh * tanh
    np.subtract(1.0, work, out=work)
    slope *= work
    np.multiply(tanh, 0.5, out=work)
    work += 0.5
    slope += work
    return slope
