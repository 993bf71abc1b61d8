"""Every planted bug is caught in the simulator, under each strategy in which it can show, by what must catch it."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from services.judge import DATA_PARALLEL
from testbed.finding import run_planted
from testbed.mutations import row_of
from testbed.plants import PLANTS, Plant

BUGS = [plant for plant in PLANTS.values() if plant.strategy != "shards"]  # of data-parallel training
CASES = [pytest.param(plant, way, id=f"{plant.name}-{way}") for plant in BUGS for way in plant.strategies]


@pytest.mark.parametrize(("plant", "strategy"), CASES)
def test_caught(plant: Plant, strategy: str, tmp_path: Path) -> None:
    row = row_of(plant, "sim", strategy, 0.0, run_planted(plant, plant.scenario_argument, "sim", strategy, tmp_path))
    assert row.caught, f"{row.verdict}; {row.said}"


def test_there_are_enough_of_every_kind() -> None:
    invariants = Counter(plant.invariant for plant in BUGS if plant.invariant)
    assert invariants.keys() == {kind.name for kind in DATA_PARALLEL}
    assert min(invariants.values()) >= 3, invariants
    assert len(BUGS) >= 34
    assert sum(plant.saved for plant in BUGS) <= len(BUGS) / 4  # those that edit a history


def test_what_a_bug_does_is_said_in_one_sentence() -> None:
    for plant in PLANTS.values():
        assert plant.what.endswith("."), plant.name
        assert len(plant.what) <= 120, plant.name
