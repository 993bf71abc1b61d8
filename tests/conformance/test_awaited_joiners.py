"""An open waits for a scheduled joiner, and for nobody else; when that one is dead, it opens without it, for good."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from chaos.scenario import parse_scenario
from services.records import Opened
from testbed.history_facts import read_facts
from testbed.run_folder import RunFolder

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
STILL_A_MEMBER = """\
name: still-a-member
title: A death regroups worker-2 shortly before it dies too and is awaited in the next step
training: {workers: 4}
faults:
- {kind: kill, target: worker-3, trigger: {step: 4, phase: offer}}
- {kind: kill, target: worker-2, trigger: {step: 4, phase: applied}, relaunch_at: 5}
"""


def dealt_to(result: testbed.RunResult, step: int) -> set[str]:
    """Workers that the open of this step dealt samples to."""
    opens = [told.fact for told in read_facts(RunFolder(result.folder).history_path, (Opened,))]
    (opened,) = [fact for fact in opens if isinstance(fact, Opened) and fact.step == step]
    return set(opened.deals)


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("text", [KILLED_WHILE_COMING_BACK, COORDINATOR_FORGETS])
def test_no_later_open_waits(text: str, strategy: str, tmp_path: Path) -> None:
    scenario = parse_scenario(text + "liveness_bound_ms: 5000\n", "here")  # a wait for a joiner lasts 20 s
    result = testbed.run(scenario, strategy=strategy, out=tmp_path / "run")
    assert result.verdict == "pass", result.document["invariants"]["liveness"]


@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_whoever_is_still_a_member_has_not_come_back_yet(strategy: str, tmp_path: Path) -> None:
    result = testbed.run(parse_scenario(STILL_A_MEMBER, "here"), strategy=strategy, out=tmp_path / "run")
    assert result.verdict == "pass", result.document["faults"]
    assert dealt_to(result, 5) == {"1", "2", "4"}


@pytest.mark.parametrize("name", ["kill-joiner-sync", "kill-joiner-proved"])
def test_a_joiner_that_dies_on_its_way_in_is_out_of_that_open(name: str, tmp_path: Path) -> None:
    result = testbed.run(name, out=tmp_path / "run")
    assert dealt_to(result, 8) == {"1", "3", "4"}
    assert dealt_to(result, 11) == {"1", "2", "3", "4"}
