"""AdamW, element by element, so that an independent replay can be bitwise on any machine.

For every element, in float64, each operation rounded once (no fused multiply-add), in this order, with t the number of
updates including this one, g the gradient, B1 and B2 the betas:

    c1 = 1 - power(B1, t)                 c2 = 1 - power(B2, t)               keep = 1 - learning_rate * weight_decay
    first  = (B1 * first) + ((1 - B1) * g)
    second = (B2 * second) + ((1 - B2) * (g * g))
    parameters = (keep * parameters) - (learning_rate * ((first / c1) / (sqrt(second / c2) + epsilon)))

Each of keep, c1, c2, 1 - B1 and 1 - B2 is one float64, computed once. `power` squares and multiplies (see there)
instead of calling the C library, whose last digit differs between systems. Weight decay acts on every parameter.

Duty of the caller: hand in a finite gradient; a skipped step must not call this at all, so t counts updates, not steps.
"""

import math
from dataclasses import dataclass

import numpy as np

from training.arrays import FloatArray, require_same_layout
from training.errors import ConfigurationError, ContractError


@dataclass(frozen=True, slots=True)
class AdamWConfig:
    """learning_rate > 0, weight_decay >= 0, betas in [0, 1), epsilon > 0; no units. Raises ConfigurationError."""

    learning_rate: float = 3e-3
    weight_decay: float = 1e-2
    beta1: float = 0.9
    beta2: float = 0.999
    epsilon: float = 1e-8

    def __post_init__(self) -> None:
        for name in self.__slots__:
            value = getattr(self, name)
            if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
                raise ConfigurationError(f"optimizer.{name} is {value!r}; it must be a finite number")
        for name in ("learning_rate", "epsilon"):
            if getattr(self, name) <= 0:
                raise ConfigurationError(f"optimizer.{name} is {getattr(self, name)!r}; it must be above 0")
        for name in ("beta1", "beta2"):
            if not 0 <= getattr(self, name) < 1:
                raise ConfigurationError(
                    f"optimizer.{name} is {getattr(self, name)!r}; it must be at least 0 and below 1"
                )
        if self.weight_decay < 0:
            raise ConfigurationError(f"optimizer.weight_decay is {self.weight_decay!r}; it must be at least 0")


@dataclass(frozen=True, slots=True, eq=False)
class AdamWState:
    """First and second moment, float64 (P,) each, and how many updates made them."""

    first: FloatArray
    second: FloatArray
    step_count: int


def start_adamw(parameter_count: int) -> AdamWState:
    """No update yet: moments of zeros."""
    return AdamWState(np.zeros(parameter_count), np.zeros(parameter_count), 0)


def apply_adamw(
    config: AdamWConfig, parameters: FloatArray, state: AdamWState, gradient: FloatArray
) -> tuple[FloatArray, AdamWState]:
    """Return new (parameters, state), float64 (P,); the arguments stay as they were.

    Raises ContractError when shapes or dtypes differ or the step count is negative. Source: Loshchilov and Hutter 2019,
    in the form that PyTorch uses (weight decay scaled by the learning rate, before the update).
    """
    for name, array in (("gradient", gradient), ("first moment", state.first), ("second moment", state.second)):
        require_same_layout(parameters, array, f"{name} against parameters")
    if state.step_count < 0:
        raise ContractError(f"AdamW after {state.step_count} updates; the count starts at 0")
    count = state.step_count + 1
    with np.errstate(all="ignore"):
        first = config.beta1 * state.first
        work = (1.0 - config.beta1) * gradient
        first += work
        second = config.beta2 * state.second
        np.multiply(gradient, gradient, out=work)
        work *= 1.0 - config.beta2
        second += work
        np.divide(second, 1.0 - power(config.beta2, count), out=work)
        np.sqrt(work, out=work)
        work += config.epsilon
        change = first / (1.0 - power(config.beta1, count))
        change /= work
        change *= config.learning_rate
        updated = (1.0 - config.learning_rate * config.weight_decay) * parameters
        updated -= change
    return updated, AdamWState(first, second, count)


def power(base: float, exponent: int) -> float:
    """base^exponent for exponent >= 0, by the exponent's bits from the lowest: for each, multiply the result (from 1.0)
    by the square so far if the bit is set, then square. Only multiplications, so the same bits on any machine."""
    result, square = 1.0, float(base)
    while exponent:
        if exponent & 1:
            result *= square
        square *= square
        exponent >>= 1
    return result
