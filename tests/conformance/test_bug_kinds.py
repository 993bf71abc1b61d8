"""Kinds of bugs that people have reported, in whole simulated runs: the late gradient (12) and the zombie (13)."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from services.invariants.fencing import STALE
from services.records import Refused
from testbed.history_facts import read_facts
from testbed.run_folder import RunFolder

STRATEGIES = ["ring", "ps"]


def refused(scenario: str, strategy: str, folder: Path) -> list[str]:
    """Why messages were refused in a run of this scenario, which passes and ends."""
    result = testbed.run(scenario, strategy=strategy, out=folder)
    assert result.passed, result.document["reasons"]
    assert result.document["samples"]["lost"] == result.document["samples"]["repeated"] == 0
    return [told.fact.reason for told in read_facts(RunFolder(folder).history_path, (Refused,))]  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_bug_kind_12_a_late_gradient_is_refused_and_its_samples_are_dealt_again(strategy: str, tmp_path: Path) -> None:
    assert "late" in refused("straggler", strategy, tmp_path / "run")


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("scenario", ["pause-past-lease", "partition-heal"])
def test_bug_kind_13_nothing_of_a_zombie_has_an_effect(scenario: str, strategy: str, tmp_path: Path) -> None:
    assert set(refused(scenario, strategy, tmp_path / "run")) & set(STALE)
