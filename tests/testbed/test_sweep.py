"""Sweeps: no false alarm, the same outcomes in any number of processes, and a bug that is found and made small."""

from __future__ import annotations

import json
import shlex
from pathlib import Path

import pytest

from chaos.scenario import parse_scenario
from testbed.cli import run_command
from testbed.finding import Found, find, median_of
from testbed.plants import PLANTS
from testbed.sweeping import CRASHED, Outcome, Summary, SweepPlan, pool_of, run_scenario, shrunk, sweep


def plain(outcome: Outcome) -> Outcome:
    """Without the time that it took."""
    return Outcome(**{**{name: getattr(outcome, name) for name in outcome.__dataclass_fields__}, "seconds": 0.0})


def test_thirty_clean_runs_raise_no_alarm() -> None:
    summary = Summary()
    for outcome in sweep(SweepPlan(30, first_seed=20)):
        assert outcome.passed, f"seed {outcome.seed}, {outcome.strategy}: {outcome.violated} {outcome.why}"
        summary.add(outcome)
    assert summary.verdicts == {"pass": 30}
    assert summary.steps_committed == summary.steps_checked > 30 * 10
    assert summary.kills > 10
    assert 0 < summary.worst_error_floors < 4


def test_two_processes_find_what_one_finds() -> None:
    plan = SweepPlan(4, first_seed=3, workers=(3, 4))
    with pool_of(2) as pool:
        assert [plain(one) for one in sweep(plan, pool)] == [plain(one) for one in sweep(plan)]
        assert next(sweep(plan, pool)).seed == 3  # and whoever has seen enough goes


def test_every_schedule_is_run_under_both_strategies() -> None:
    assert [SweepPlan(4, 7).job(number) for number in range(4)] == [(7, "ring"), (7, "ps"), (8, "ring"), (8, "ps")]


def test_a_bug_is_found_and_its_schedule_made_small() -> None:
    plant = PLANTS["sample-lost"]  # it takes a death to show
    plan = SweepPlan(20, first_seed=5, plants=(plant.name,))
    outcome = next(one for one in sweep(plan) if plant.invariant in one.violated)
    small = shrunk(outcome, plan).scenario
    assert len(small.faults) == 1
    assert small.training.workers <= 3
    assert plant.invariant in run_scenario(small, outcome.strategy, plan.plants).violated
    assert run_scenario(small, outcome.strategy, ()).passed


def test_a_run_that_breaks_is_an_outcome_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise AssertionError("a role broke")

    monkeypatch.setattr("services.roles.worker.Worker._offer", broken)
    scenario = SweepPlan(1).scenario(0, "ring")
    outcome = run_scenario(scenario, "ring", (), 0)
    assert (outcome.verdict, outcome.why) == (CRASHED, ("AssertionError: a role broke",))


def test_runs_to_find() -> None:
    found = find(PLANTS["counted-twice"], SweepPlan(5, first_seed=1))
    assert (found.bug, found.runs) == ("counted-twice", 1)
    assert "twice" in found.how
    assert find(PLANTS["server-sums-as-they-come"], SweepPlan(2, strategies=("ring",))).runs is None
    assert median_of([Found("a", 1), Found("b", None), Found("c", 9), Found("d", 2)]) == 2
    assert median_of([Found("b", None)]) is None


# ---------------------------------------------------------------- the command


def test_the_first_line_is_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sweep", "--runs", "2", "--seed", "31", "--workers", "3", "--jobs", "1"]) == 0
    first, *rest = capsys.readouterr().out.splitlines()
    assert first == "gradstorm sweep --runs 2 --seed 31 --workers 3-3 --strategy both --engine sim"
    assert rest[-1] == "2 random schedules: every run passed."


def test_what_goes_wrong_is_written_down(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["--runs", "1", "--seed", "4", "--strategy", "ring", "--plant", "one-ulp", "--out", str(tmp_path)]
    assert run_command(["sweep", *arguments, "--jobs", "1", "--json"]) == 1
    document = json.loads(capsys.readouterr().out)
    (wrong,) = document["wrong"]
    assert document["verdicts"] == {"violated": 1}
    assert "replica agreement" in wrong["violated"]
    assert parse_scenario(Path(wrong["schedule"]).read_text(), "here").faults == []
    program, *again = shlex.split(wrong["replay"])
    assert program == "gradstorm"
    assert run_command([*again, "--out", str(tmp_path / "again")]) == 1


def test_the_table_of_runs_to_find(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["sweep", "--runs-to-find", "--runs", "3", "--plant", "one-ulp", "--jobs", "1"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert out[1].split()[0] == "one-ulp"
    assert out[-1] == "1 bugs, 0 not found in 3 runs each; median runs to find: 1"


@pytest.mark.parametrize("arguments", [["--workers", "8-3"], ["--strategy", "star"], ["--engine", "moon"]])
def test_what_the_command_refuses(arguments: list[str]) -> None:
    assert run_command(["sweep", *arguments]) == 2
