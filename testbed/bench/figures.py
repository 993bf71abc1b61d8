"""A figure: one number with its unit, how it came about, its spread, and what it is compared with.

Everything is a median with the quartiles beside it. A ratio names the peer, and the peer's own value from the same run.
"""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal

Kind = Literal["measured", "modelled"]
Sense = Literal["at_least", "at_most"]


@dataclass(frozen=True, slots=True)
class Goal:
    """What a figure should reach."""

    sense: Sense
    bound: float

    def met_by(self, value: float) -> bool:
        """Whether `value` reaches it."""
        return value >= self.bound if self.sense == "at_least" else value <= self.bound


@dataclass(frozen=True, slots=True)
class Figure:
    """`spread` is the lower and the upper quartile of the `n` samples that `value` is the median of."""

    name: str
    value: float
    unit: str
    spread: tuple[float, float]
    n: int
    kind: Kind = "measured"
    goal: Goal | None = None
    peer: str = ""  # for a ratio: what it is a ratio to
    peer_value: float | None = None
    peer_unit: str = ""
    own_value: float | None = None  # for a ratio: our side of it, in `peer_unit`
    note: str = ""
    load: str = ""  # what else the machine was doing

    def document(self) -> dict[str, Any]:
        """As `--json` prints it."""
        plain = asdict(self)
        plain["spread"] = list(self.spread)
        plain["goal"] = None if self.goal is None else {self.goal.sense: self.goal.bound}
        plain["met"] = None if self.goal is None else self.goal.met_by(self.value)
        return plain

    def under(self, load: str) -> Figure:
        """The same figure with what else was going on."""
        return replace(self, load=load)


def quartiles(samples: Sequence[float]) -> tuple[float, float]:
    """Lower and upper quartile, the ends included. Raises ValueError without a sample."""
    if not samples:
        raise ValueError("no sample")
    if len(samples) == 1:
        return samples[0], samples[0]
    lower, _, upper = statistics.quantiles(samples, n=4, method="inclusive")
    return lower, upper


def figure(
    name: str, samples: Sequence[float], unit: str, *, goal: Goal | None = None, kind: Kind = "measured", note: str = ""
) -> Figure:
    """The median of samples with their spread. Raises ValueError without a sample."""
    low, high = quartiles(samples)
    return Figure(name, statistics.median(samples), unit, (low, high), len(samples), kind, goal, note=note)


@dataclass(frozen=True, slots=True)
class Peer:
    """Somebody else's samples of the same thing, in the same unit."""

    name: str
    samples: Sequence[float]
    unit: str


def times_as_fast(name: str, own: Sequence[float], peer: Peer, *, goal: Goal | None = None, note: str = "") -> Figure:
    """How many times as fast as the peer: its time over ours, medians; the spread pairs opposite quartiles."""
    return _ratio(name, peer.samples, own, peer, own, goal, note)


def times_the_cost(name: str, own: Sequence[float], peer: Peer, *, goal: Goal | None = None, note: str = "") -> Figure:
    """How many times the peer's cost is ours: our value over its."""
    return _ratio(name, own, peer.samples, peer, own, goal, note)


def _ratio(
    name: str, above: Sequence[float], below: Sequence[float], peer: Peer, own: Sequence[float], goal: Goal | None,
    note: str,
) -> Figure:  # fmt: skip
    (above_low, above_high), (below_low, below_high) = quartiles(above), quartiles(below)
    return Figure(
        name,
        statistics.median(above) / statistics.median(below),
        "x",
        (above_low / below_high, above_high / below_low),
        min(len(above), len(below)),
        goal=goal,
        peer=peer.name,
        peer_value=statistics.median(peer.samples),
        peer_unit=peer.unit,
        own_value=statistics.median(own),
        note=note,
    )
