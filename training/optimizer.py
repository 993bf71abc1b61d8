"""SGD with momentum, element by element, so that an independent replay can be bitwise.

For every element, in float64, each operation rounded once (no fused multiply-add), in this order:

    velocity   = (momentum * velocity) + gradient
    parameters = parameters - (learning_rate * velocity)

There is no special case: with momentum 0 the velocity is carried all the same and equals the gradient (0 * v + g;
only the sign of a zero may differ). A run starts from a velocity of zeros.

Duty of the caller: hand in a finite gradient; a skipped step must not call this at all.
"""

import numpy as np

from training.arrays import FloatArray, require_same_layout
from training.config import OptimizerConfig


def apply_sgd(
    config: OptimizerConfig, parameters: FloatArray, velocity: FloatArray, gradient: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return new (parameters, velocity), float64 (P,) each; the arguments stay as they were.

    Raises ContractError when the three differ in shape or one is not float64. Source: Sutskever et al. 2013,
    in the form that PyTorch uses (the learning rate is outside of the velocity).
    """
    require_same_layout(parameters, velocity, "velocity against parameters")
    require_same_layout(parameters, gradient, "gradient against parameters")
    with np.errstate(all="ignore"):
        new_velocity = config.momentum * velocity
        new_velocity += gradient
        change = config.learning_rate * new_velocity
        return np.subtract(parameters, change, out=change), new_velocity
