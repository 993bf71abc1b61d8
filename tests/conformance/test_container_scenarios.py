"""Every data-parallel scenario in containers, the strategies in turn: it passes, with the simulator's bits where fixed.

One of each kind of fault always runs; the others are long together, so they run where GRADSTORM_REQUIRE names matrix
(`tests.needs`). `make chaos-all` runs both strategies of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.scenario import Scenario
from services.any_config import AnyStrategy
from testbed.matrix import cells, run_cells

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(240)]
ALWAYS = {
    "bandwidth", "disconnect", "flapping-blackhole", "jitter", "kill-in-regroup", "kill-server-gathering",
    "kill-verifier", "latency", "one-way-partition", "partition-heal", "pause-past-lease", "reset-in-exchange",
    "two-killed",
}  # fmt: skip
CELLS = [
    pytest.param(
        *cell,
        id=f"{cell[0].name}-{cell[1]}",
        marks=() if cell[0].name in ALWAYS else pytest.mark.matrix,
    )
    for cell in cells([], "containers", "alternate")
]


@pytest.mark.parametrize(("scenario", "strategy"), CELLS)
def test_scenario(scenario: Scenario, strategy: AnyStrategy, tmp_path: Path) -> None:
    (row,) = run_cells([(scenario, strategy)], "containers", tmp_path)
    assert row.good, (row.verdict, row.equality, row.why, row.folder)
    assert row.steps_checked == row.steps_committed > 0
    assert len(row.effects) == len(scenario.faults)
