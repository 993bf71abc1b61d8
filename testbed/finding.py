"""How many random schedules it takes to find a planted bug: each run has the bug in it, until one is caught."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from dataclasses import dataclass, replace

from testbed.plants.registry import VIOLATED, Plant
from testbed.sweeping import CRASHED, Outcome, Pool, SweepPlan, sweep


@dataclass(frozen=True, slots=True)
class Found:
    """`runs` until the bug was caught, None when it was not."""

    bug: str
    runs: int | None
    how: str = ""


def find(plant: Plant, plan: SweepPlan, pool: Pool | None = None) -> Found:
    """Sweep with the bug planted until the verifier says what it must, at most `plan.runs` times."""
    strategies = tuple(one for one in plan.strategies if one in plant.strategies)
    if not strategies:
        return Found(plant.name, None, f"it shows in {' and '.join(plant.strategies)} only")
    outcomes = sweep(replace(plan, plants=(plant.name,), strategies=strategies), pool)
    for number, outcome in enumerate(outcomes, start=1):
        if caught(plant, outcome):
            what = outcome.violated.get(plant.invariant) or "; ".join(outcome.why)
            return Found(plant.name, number, f"seed {outcome.seed}, {outcome.strategy}: {what}")
    return Found(plant.name, None)


def caught(plant: Plant, outcome: Outcome) -> bool:
    """As for `gradstorm mutations`: by the invariant that must catch it, or unknown where the evidence is gone."""
    if plant.expected == VIOLATED:
        return plant.invariant in outcome.violated
    return outcome.verdict == plant.expected and outcome.verdict != CRASHED


def median_of(found: Sequence[Found]) -> float | None:
    """Over the bugs that were found at all."""
    runs = [one.runs for one in found if one.runs is not None]
    return statistics.median(runs) if runs else None
