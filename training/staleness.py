"""How old a boundary is when it is used, and what it then counts: the drawn delay, and the decay by age.

Ages and delays are counted in ticks; the run says how long a tick is. `delay_ticks` is a pure function of its key, so
every engine draws the same, in whatever order it asks, and a retried attempt waits as long as the first one.
"""

import hashlib
import math
from dataclasses import dataclass
from typing import Literal, get_args

from training.errors import ConfigurationError, ContractError

Direction = Literal["forward", "backward"]


@dataclass(frozen=True, slots=True)
class DelayConfig:
    """A delay of `base_ticks` plus a uniform whole number in [-jitter_ticks, jitter_ticks], never below 0; with
    probability `reorder_probability` a further base_ticks + jitter_ticks + 1, so that later boundaries overtake it.

    Raises ConfigurationError.
    """

    base_ticks: int = 0
    jitter_ticks: int = 0
    reorder_probability: float = 0.0

    def __post_init__(self) -> None:
        for name in ("base_ticks", "jitter_ticks"):
            _require_whole(f"delay.{name}", getattr(self, name))
        if not 0.0 <= _real("delay.reorder_probability", self.reorder_probability) <= 1.0:
            raise ConfigurationError(f"delay.reorder_probability is {self.reorder_probability!r}; it must be in 0 .. 1")

    @property
    def longest_ticks(self) -> int:
        """The largest delay that can be drawn."""
        straight = self.base_ticks + self.jitter_ticks
        return straight + (straight + 1 if self.reorder_probability > 0.0 else 0)


@dataclass(frozen=True, slots=True)
class DecayConfig:
    """Weight max(floor, exp(-rate * age)); rate per tick, at least 0, floor in 0 .. 1. Raises ConfigurationError."""

    rate: float = 0.5
    floor: float = 0.25

    def __post_init__(self) -> None:
        if _real("decay.rate", self.rate) < 0.0:
            raise ConfigurationError(f"decay.rate is {self.rate!r}; it must be at least 0")
        if not 0.0 <= _real("decay.floor", self.floor) <= 1.0:
            raise ConfigurationError(f"decay.floor is {self.floor!r}; it must be in 0 .. 1")


def decay_weight(age: int, rate: float, floor: float) -> float:
    """max(floor, exp(-rate * age)): 1.0 at age 0, never below the floor. age in ticks, rate per tick.

    Raises ContractError for a negative age: a boundary cannot be used before it was made.
    """
    if age < 0:
        raise ContractError(f"a boundary of age {age}; it cannot be used before it was made")
    return max(floor, math.exp(-rate * age))


def delay_ticks(config: DelayConfig, seed: int, step: int, micro_batch: int, cut: int, direction: Direction) -> int:
    """The delay in ticks, at least 0, of one boundary; the same for the same arguments, everywhere.

    The draw: SHA-256 over the ASCII text `gradstorm delay 1 SEED STEP MICRO_BATCH CUT DIRECTION`. Its first 8 bytes, as
    a big-endian whole number u, give the jitter (u * (2 jitter + 1) >> 64) - jitter; the next 8 give a number in
    [0, 1), their upper 53 bits over 2^53, and below the probability the boundary is held back. Raises ContractError for
    another direction.
    """
    if direction not in get_args(Direction):
        raise ContractError(f"a boundary's direction is {direction!r}; it must be forward or backward")
    text = f"gradstorm delay 1 {seed} {step} {micro_batch} {cut} {direction}"
    drawn = hashlib.sha256(text.encode("ascii")).digest()
    jitter_draw, reorder_draw = int.from_bytes(drawn[:8], "big"), int.from_bytes(drawn[8:16], "big")
    jitter = (jitter_draw * (2 * config.jitter_ticks + 1) >> 64) - config.jitter_ticks
    delay = max(0, config.base_ticks + jitter)
    if (reorder_draw >> 11) / 2.0**53 < config.reorder_probability:
        delay += config.base_ticks + config.jitter_ticks + 1
    return delay


def _require_whole(where: str, value: object) -> None:
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise ConfigurationError(f"{where} is {value!r}; it must be a whole number of at least 0")


def _real(where: str, value: object) -> float:
    if not isinstance(value, int | float) or isinstance(value, bool) or not math.isfinite(value):
        raise ConfigurationError(f"{where} is {value!r}; it must be a finite number")
    return float(value)
