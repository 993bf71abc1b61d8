"""The matrix: which cells it has, that it compares with the simulator, and what it says of a run that is not good."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import pytest

from chaos.scenario import Scenario
from testbed.cli import run_command
from testbed.commands.matrix import _summary
from testbed.matrix import Row, cells, effect_of, run_cells
from training.errors import ConfigurationError


def names(wanted: Sequence[tuple[Scenario, str]]) -> list[tuple[str, str]]:
    return [(scenario.name, strategy) for scenario, strategy in wanted]


def test_cells_are_scenarios_times_strategies() -> None:
    assert names(cells(["clean", "kill-server-gathering"], "sim", "both")) == [
        ("clean", "ring"),
        ("clean", "ps"),
        ("kill-server-gathering", "ps"),
    ]


def test_alternating_cells_take_each_scenario_once() -> None:
    every = names(cells([], "containers", "alternate"))
    assert len({name for name, _ in every}) == len(every) > 30
    assert {strategy for _, strategy in every} == {"ring", "ps"}
    assert not any(name.startswith("shards") or name == "power-cut" for name, _ in every)


def test_a_named_scenario_that_the_engine_cannot_do_is_refused() -> None:
    with pytest.raises(ConfigurationError, match="power_cut"):
        cells(["power-cut"], "containers", "ring")
    with pytest.raises(ConfigurationError, match="no scenario is left"):
        cells(["kill-server-gathering"], "containers", "ring")


def test_good_runs_leave_no_folder(tmp_path: Path) -> None:
    rows = list(run_cells(cells(["kill-worker"], "sim", "both"), "sim", tmp_path))
    assert [row.verdict for row in rows] == ["pass", "pass"]
    assert all(row.good and row.effects[0].startswith("1-kill-worker-2: exit_code -9") for row in rows)
    assert rows[0].params_sha256 == rows[1].params_sha256
    assert list(tmp_path.iterdir()) == []


def test_other_bits_than_the_simulators_are_not_good() -> None:
    row = Row("clean", "ring", "pass", 1.0, 0, params_sha256="a", expected_sha256="b")
    assert row.equality == "differs"
    assert not row.good


def test_a_missed_fault_says_why() -> None:
    fault = {"fault": "1-latency", "state": "missed", "reason": "it met no message", "witness": {}}
    assert effect_of(fault) == "1-latency: missed, it met no message"


def test_the_command_prints_a_document(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code = run_command(["matrix", "clean", "--engine", "sim", "--json", "--out", str(tmp_path / "m")])
    document = json.loads(capsys.readouterr().out)
    assert code == 0
    assert document["schema"] == "gradstorm.matrix/1"
    assert [(row["scenario"], row["good"]) for row in document["rows"]] == [("clean", True)] * 2


@pytest.mark.local
def test_on_processes_the_bits_are_the_simulators(tmp_path: Path) -> None:
    (row,) = run_cells(cells(["kill-at-reduce"], "local", "ring"), "local", tmp_path)
    assert row.equality == "equal", row.why
    assert row.good


@pytest.mark.local
def test_a_worker_that_is_asked_to_end_does_and_changes_no_more_than_a_death(tmp_path: Path) -> None:
    (stopped,) = run_cells(cells(["stop-worker"], "local", "ring"), "local", tmp_path)
    (killed,) = run_cells(cells(["relaunch"], "sim", "ring"), "sim", tmp_path)
    assert stopped.good, stopped.why
    assert stopped.effects[0].startswith("1-stop-worker-2: exit_code 0, phase reduce, step 5")
    assert stopped.params_sha256 == killed.params_sha256


@pytest.mark.parametrize(("engine", "said"), [("sim", "simulator's own results"), ("local", "no result to compare")])
def test_no_fixed_result_is_not_told_as_none_of_none(engine: str, said: str) -> None:
    summary = _summary(engine, [Row("clean", "ring", "pass", 1.0, exit_code=0, fixed=False)])
    assert said in summary
    assert "0 of 0" not in summary
