"""Figures as text for people."""

from __future__ import annotations

from collections.abc import Sequence

from testbed.bench.family import Family
from testbed.bench.figures import Figure


def table(family: Family, figures: Sequence[Figure]) -> list[str]:
    """A block of lines: title, assumptions, one line per figure, notes."""
    width = max((len(one.name) for one in figures), default=0)
    lines = [family.title, *(f"  ({text})" for text in family.assumptions)]
    lines += [f"  {one.name:{width}}  {_value(one)}{_goal(one)}{_peer(one)}" for one in figures]
    notes = sorted({f"  {one.name}: {one.note}" for one in figures if one.note})
    return [*lines, *notes, f"  [{figures[0].load}]" if figures else "  nothing measured", ""]


def summary(figures: Sequence[Figure]) -> str:
    """How many goals are met, and which are not."""
    aimed = [one for one in figures if one.goal is not None]
    missed = [one.name for one in aimed if one.goal is not None and not one.goal.met_by(one.value)]
    met = len(aimed) - len(missed)
    return f"{met} of {len(aimed)} goals met" + (f"; missed: {', '.join(missed)}" if missed else "") + "."


def _value(one: Figure) -> str:
    low, high = one.spread
    spread = f"[{_short(low)} .. {_short(high)}]" if one.kind == "measured" else "modelled"
    return f"{_short(one.value):>8} {one.unit:<22} {spread:<20} n={one.n:<4}"


def _goal(one: Figure) -> str:
    if one.goal is None:
        return ""
    words = {"at_least": "at least", "at_most": "at most"}[one.goal.sense]
    return f" goal {words} {one.goal.bound:g}: {'met' if one.goal.met_by(one.value) else 'MISSED'}"


def _peer(one: Figure) -> str:
    if not one.peer or one.peer_value is None or one.own_value is None:
        return ""
    return f"  ({_short(one.own_value)} {one.peer_unit}; {one.peer}: {_short(one.peer_value)})"


def _short(value: float) -> str:
    """Four digits that count."""
    return f"{value:,.0f}" if abs(value) >= 1000 else f"{value:.4g}"
