"""The same bugs in real processes, over gRPC: those that nobody may miss, half of them under each strategy."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.finding import run_planted
from testbed.mutations import row_of
from testbed.plants import PLANTS

RING = (
    "mean-of-means",
    "counted-twice",
    "wrong-step",
    "sample-lost",
    "fence-skipped",
    "one-ulp",
    "history-bit-flipped",
)
SERVER = (
    "dropped-contribution",
    "wrong-total",
    "arrival-order",
    "sample-repeated",
    "momentum-not-restored",
    "step-repeated",
)


@pytest.mark.local
@pytest.mark.parametrize(("name", "strategy"), [(name, "ring") for name in RING] + [(name, "ps") for name in SERVER])
def test_caught(name: str, strategy: str, tmp_path: Path) -> None:
    plant = PLANTS[name]
    document = run_planted(plant, plant.scenario_argument, "local", strategy, tmp_path)
    row = row_of(plant, "local", strategy, 0.0, document)
    assert row.caught, f"{row.verdict}; {row.said}"
