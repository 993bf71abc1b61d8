"""SGD with momentum or AdamW behind one pair of functions, with a state that can be cut, merged and saved.

Both act element by element, so a shard's update of its part is that part of the central update, bit by bit; and a
moment is cut and merged as the parameters are (`training.transformer.sharding`).
"""

from dataclasses import dataclass

import numpy as np

from training.adamw import AdamWConfig, AdamWState, apply_adamw
from training.arrays import FloatArray
from training.config import OptimizerConfig
from training.errors import ContractError
from training.optimizer import apply_sgd

OptimizerSettings = OptimizerConfig | AdamWConfig


@dataclass(frozen=True, slots=True, eq=False)
class OptimizerState:
    """Moments, float64 (P,) each, in the order of `moment_names`, and how many updates made them."""

    moments: tuple[FloatArray, ...]
    step_count: int


def moment_names(settings: OptimizerSettings) -> tuple[str, ...]:
    """What the moments are called in a snapshot."""
    return ("velocity",) if isinstance(settings, OptimizerConfig) else ("first_moment", "second_moment")


def start(settings: OptimizerSettings, parameter_count: int) -> OptimizerState:
    """No update yet: moments of zeros."""
    return OptimizerState(tuple(np.zeros(parameter_count) for _ in moment_names(settings)), 0)


def update(
    settings: OptimizerSettings, parameters: FloatArray, state: OptimizerState, gradient: FloatArray
) -> tuple[FloatArray, OptimizerState]:
    """Return new (parameters, state), float64 (P,); the arguments stay as they were. The gradient must be finite.

    Raises ContractError when shapes or dtypes differ, or the state belongs to the other optimizer.
    """
    if len(state.moments) != len(moment_names(settings)):
        raise ContractError(
            f"an optimizer state of {len(state.moments)} moments; {type(settings).__name__} has"
            f" {len(moment_names(settings))}"
        )
    if isinstance(settings, OptimizerConfig):
        parameters, velocity = apply_sgd(settings, parameters, state.moments[0], gradient)
        return parameters, OptimizerState((velocity,), state.step_count + 1)
    first, second = state.moments
    parameters, new = apply_adamw(settings, parameters, AdamWState(first, second, state.step_count), gradient)
    return parameters, OptimizerState((new.first, new.second), new.step_count)
