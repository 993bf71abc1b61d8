"""The verifier's own optimizer and digest: the state after every step, replayed bit by bit.

For each element, in float64, every operation rounded once:

    velocity   = (momentum * velocity) + gradient
    parameters = parameters - (learning_rate * velocity)

Multiplication, addition and subtraction of float64 are exact functions of their inputs on every machine (IEEE 754),
so a replay from the recorded reduced gradient must give the very bits that every replica holds.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np

from services.messages import Array

_CANONICAL = np.dtype("<f8")


def digest_of(array: Array) -> str:
    """SHA-256, hex, of the elements as little-endian float64 in C order."""
    if array.dtype != _CANONICAL or not array.flags.c_contiguous:
        array = np.ascontiguousarray(array, dtype=_CANONICAL)
    return hashlib.sha256(array.data).hexdigest()


@dataclass(frozen=True, slots=True, eq=False)
class ReplayedState:
    """Parameters and velocity, float64 (P,) each, and their digests."""

    parameters: Array
    velocity: Array
    digests: tuple[str, str]

    @classmethod
    def of(cls, parameters: Array, velocity: Array) -> ReplayedState:
        return cls(parameters, velocity, (digest_of(parameters), digest_of(velocity)))


def replay_step(before: ReplayedState, gradient: Array, learning_rate: float, momentum: float) -> ReplayedState:
    """The state after one step with this reduced gradient."""
    with np.errstate(all="ignore"):
        velocity = momentum * before.velocity + gradient
        return ReplayedState.of(before.parameters - learning_rate * velocity, velocity)


def replay_sum(contributions: Iterable[tuple[int, Array]], total: int) -> Array:
    """Sum of (n_k / total) * g_k over (n_k, g_k) from left to right, without a zero to start from."""
    result: Array | None = None
    with np.errstate(all="ignore"):
        for count, gradient in contributions:
            part = (count / total) * gradient
            result = part if result is None else result + part
    assert result is not None, "a sum of nothing"
    return result
