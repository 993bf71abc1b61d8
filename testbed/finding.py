"""How many random schedules it takes to find a planted bug: each run has the bug in it, until one is caught.

Most are looked for in memory. A bug in a saved history, or in going on from a checkpoint, needs a run folder, which
goes with the run. Bugs of layer-sharded training are not looked for: no random schedules are drawn for it.
"""

from __future__ import annotations

import statistics
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from chaos.scenario import Scenario
from testbed.api import run, verify
from testbed.plants.registry import VIOLATED, Plant
from testbed.sweeping import CRASHED, Outcome, Pool, SweepPlan, outcome_of, sweep

EARLIER_STEPS = 8  # of the run that another one goes on from


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
    within = replace(plan, plants=(plant.name,), strategies=strategies)
    outcomes = _in_folders(plant, within) if plant.saved or plant.resumes else sweep(within, pool)
    for number, outcome in enumerate(outcomes, start=1):
        if caught(plant, outcome):
            what = outcome.violated.get(plant.invariant) or "; ".join(outcome.why)
            return Found(plant.name, number, f"seed {outcome.seed}, {outcome.strategy}: {what}")
    return Found(plant.name, None)


def _in_folders(plant: Plant, plan: SweepPlan) -> Iterator[Outcome]:
    for number in range(plan.runs):
        seed, strategy = plan.job(number)
        began_s = time.monotonic()
        with tempfile.TemporaryDirectory(prefix="gradstorm-find-") as home:
            document = run_planted(plant, plan.scenario(seed, strategy), plan.engine, strategy, Path(home))
        yield outcome_of(document, seed, strategy, time.monotonic() - began_s)


def run_planted(plant: Plant, scenario: str | Scenario, engine: str, strategy: str, home: Path) -> dict[str, Any]:
    """One run with the bug, in a folder in `home`; the document that judges it: its own, or its saved history's."""
    earlier = None
    if plant.resumes:
        calm = scenario
        if isinstance(scenario, Scenario):
            calm = scenario.model_copy(update={"faults": [], "fixed": True})
        first = run(calm, engine, strategy=strategy, steps=EARLIER_STEPS, out=home / "earlier")
        earlier = str(first.folder)
    result = run(scenario, engine, strategy=strategy, resume=earlier, plant=(plant.name,), out=home / "run")
    return verify(str(result.folder)).document if plant.saved else result.document


def caught(plant: Plant, outcome: Outcome) -> bool:
    """As for `gradstorm mutations`: by the invariant that must catch it, or unknown where the evidence is gone."""
    if plant.expected == VIOLATED:
        return plant.invariant in outcome.violated
    return outcome.verdict == plant.expected and outcome.verdict != CRASHED


def median_of(found: Sequence[Found]) -> float | None:
    """Over the bugs that were found at all."""
    runs = [one.runs for one in found if one.runs is not None]
    return statistics.median(runs) if runs else None
