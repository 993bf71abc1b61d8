"""Gradstorm from your own pytest. Run it: .venv/bin/python -m pytest examples

Use engine="local" for real processes; everything else stays as it is.
"""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed

SCENARIO = str(Path(__file__).with_name("two-deaths.yaml"))


@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_training_survives_two_deaths(strategy: str, tmp_path: Path) -> None:
    result = testbed.run(SCENARIO, engine="sim", strategy=strategy, out=tmp_path / "run")
    document = result.document  # what `gradstorm run --json` prints
    assert result.passed, document["reasons"]
    assert document["steps_checked"] == document["steps_committed"] == 20
    assert document["kills"] == 2
    assert all(fault["witness"] for fault in document["faults"])
    assert document["samples"]["lost"] == document["samples"]["repeated"] == 0


def test_it_trains_on_my_own_data(tmp_path: Path) -> None:
    table = tmp_path / "mine.csv"  # the last column is the class
    table.write_text("".join(f"{i % 7},{i % 5},{int(i % 7 > 3)}\n" for i in range(60)))
    result = testbed.run(SCENARIO, data=str(table), out=tmp_path / "run")
    assert result.passed, result.document["reasons"]


def test_a_bug_does_not_get_through(tmp_path: Path) -> None:
    result = testbed.run(SCENARIO, plant=["dropped-contribution"], out=tmp_path / "run")
    assert result.verdict == "violated"
    assert result.document["invariants"]["contribution accounting"]["first_violation"]["step"] == 1
