"""Every bug planted in layer-sharded training is caught by the invariant that must, in a whole simulated run."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.finding import run_planted
from testbed.mutations import row_of
from testbed.plants import PLANTS

SHARDED = sorted(name for name, bug in PLANTS.items() if bug.strategy == "shards")


def test_there_are_at_least_fifteen() -> None:
    assert len(SHARDED) >= 15
    aimed_at = {"gradient exactness", "boundary versions", "boundary fidelity", "consistent cut", "checkpoint fidelity"}
    assert {PLANTS[name].invariant for name in SHARDED} >= {*aimed_at, "durability"}


@pytest.mark.parametrize("name", SHARDED)
def test_it_is_caught(name: str, tmp_path: Path) -> None:
    document = run_planted(PLANTS[name], PLANTS[name].scenario_argument, "sim", "shards", tmp_path)
    row = row_of(PLANTS[name], "sim", "shards", 0.0, document)
    assert row.caught, (row.said, document["reasons"])
