"""An open waits for a scheduled joiner; when that one is dead, no later open waits for it again."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from chaos.scenario import parse_scenario

KILLED_WHILE_COMING_BACK = """\
name: killed-while-coming-back
title: A joiner that dies on its way in is waited for by one open only
training: {workers: 5}
faults:
- {kind: kill, target: worker-3, trigger: {step: 5, phase: applied}, relaunch_at: 7}
- {kind: kill, target: worker-3, trigger: {step: 7, phase: proved}}
"""
COORDINATOR_FORGETS = """\
name: coordinator-forgets
title: The coordinator that comes back does not wait for a joiner that was given up before
training: {workers: 3}
faults:
- {kind: add, target: worker-4, step: 6}
- {kind: kill, target: worker-4, trigger: {step: 6, phase: proved}}
- {kind: kill, target: coordinator, trigger: {step: 7, phase: tell}}
"""


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("text", [KILLED_WHILE_COMING_BACK, COORDINATOR_FORGETS])
def test_no_later_open_waits(text: str, strategy: str, tmp_path: Path) -> None:
    scenario = parse_scenario(text + "liveness_bound_ms: 5000\n", "here")  # a wait for a joiner lasts 20 s
    result = testbed.run(scenario, strategy=strategy, out=tmp_path / "run")
    assert result.verdict == "pass", result.document["invariants"]["liveness"]
