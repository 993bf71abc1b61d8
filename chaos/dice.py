"""Draws from a seeded generator that schedules are made of.

Not by numpy's `Generator.choice`: a KeyboardInterrupt that comes within it is lost now and then.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

import numpy as np

T = TypeVar("T")


def between(generator: np.random.Generator, bounds: tuple[int, int]) -> int:
    """A whole number, both bounds included."""
    return int(generator.integers(bounds[0], bounds[1], endpoint=True))


def pick(generator: np.random.Generator, options: Sequence[T]) -> T:
    """One of them, each as likely as any other."""
    return options[int(generator.integers(len(options)))]


def pick_weighted(generator: np.random.Generator, options: Sequence[tuple[float, T]]) -> T:
    """One of the (weight, option), each as likely as its weight."""
    weights = np.array([weight for weight, _ in options])
    upto = (weights / weights.sum()).cumsum()
    return options[int((upto / upto[-1]).searchsorted(generator.random(), side="right"))][1]
