"""SIGKILL at seeded moments of an 8 MB exchange, with nobody holding anybody: twenty-one of them over seven runs.

Where such a kill falls is up to the machine; whatever it hits, the verdict has to be "pass".
"""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from chaos.scenario import parse_scenario
from testbed.api import run

KILLS_PER_RUN = 3
SCENARIO = """
name: unheld-kills
title: Unheld kills in an 8 MB exchange
engines: [local]
fixed: false
training:
  workers: 4
  steps: 12
  dataset: {{kind: blobs, sample_count: 192, feature_count: 10000, class_count: 100}}
  batch: {{mode: per_worker, size: 4}}
  timing: {{lease_ms: 10000, join_wait_ms: 60000}}
faults: [{faults}]
clean_steps: 3
liveness_bound_ms: 60000
"""


def scenario_text(seed: int) -> str:
    """Three of the four workers die at moments drawn from the seed, within what the first steps take."""
    generator = np.random.default_rng([seed, 20])
    victims = generator.permutation([1, 2, 3, 4])[:KILLS_PER_RUN]
    moments_ms = np.sort(generator.uniform(20, 900, KILLS_PER_RUN))
    kill = "{{kind: kill, target: worker-{}, trigger: {{at_ms: {:.1f}}}}}"
    return SCENARIO.format(faults=", ".join(kill.format(*pair) for pair in zip(victims, moments_ms, strict=True)))


@pytest.mark.local
@pytest.mark.timeout(240)
@pytest.mark.parametrize("seed", range(7))
def test_an_unheld_kill_may_fall_anywhere(seed: int, tmp_path: Path) -> None:
    scenario = parse_scenario(scenario_text(seed), f"seed {seed}")
    document = run(
        scenario, engine="local", strategy=("ring", "ps")[seed % 2], seed=seed, out=tmp_path / "run"
    ).document
    assert document["verdict"] == "pass", document["reasons"]
    assert document["kills"] == KILLS_PER_RUN
    assert document["steps_checked"] == document["steps_committed"] == scenario.training.steps
