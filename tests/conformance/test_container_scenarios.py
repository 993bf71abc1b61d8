"""Every data-parallel scenario in containers, the strategies in turn: it passes, with the simulator's bits where fixed.

`make chaos-all` runs both strategies of each.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.scenario import Scenario
from services.any_config import AnyStrategy
from testbed.matrix import cells, run_cells

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(240)]
CELLS = [pytest.param(*cell, id=f"{cell[0].name}-{cell[1]}") for cell in cells([], "containers", "alternate")]


@pytest.mark.parametrize(("scenario", "strategy"), CELLS)
def test_scenario(scenario: Scenario, strategy: AnyStrategy, tmp_path: Path) -> None:
    (row,) = run_cells([(scenario, strategy)], "containers", tmp_path)
    assert row.good, (row.verdict, row.equality, row.why, row.folder)
    assert row.steps_checked == row.steps_committed > 0
    assert len(row.effects) == len(scenario.faults)
