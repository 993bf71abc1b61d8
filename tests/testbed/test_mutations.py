"""What counts as caught, the table, the exit codes, and the command itself."""

from __future__ import annotations

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import run_command
from testbed.exit_codes import ExitCode
from testbed.mutations import Row, document_of, exit_code, header, line_of, markdown, row_of, summary
from testbed.plants import PLANTS

BUG = PLANTS["mean-of-means"]
WITHHELD = PLANTS["evidence-withheld"]


def document(verdict: str, **invariants: tuple[str, int]) -> dict[str, Any]:
    """A run's document with these invariants (underscores are spaces): (verdict, first bad step)."""
    found = {
        name.replace("_", " "): {
            "verdict": said,
            "first_violation": {"step": step, "role": "worker-2", "what": "it is wrong"} if step else None,
            "reasons": [] if said != "unknown" else ["nothing was checked"],
        }
        for name, (said, step) in invariants.items()
    }
    reasons = [f"{name}: nothing was checked" for name, entry in found.items() if entry["verdict"] == "unknown"]
    return {"verdict": verdict, "reasons": reasons, "invariants": found}


def row(verdict: str, plant: Any = BUG, **invariants: tuple[str, int]) -> Row:
    return row_of(plant, "sim", "ring", 0.4, document(verdict, **invariants))


def test_caught_by_the_invariant_that_must() -> None:
    found = row("violated", gradient_exactness=("violated", 6), fencing=("pass", 0))
    assert (found.caught, found.at, found.outcome) == (True, "step 6, worker-2", "caught")


def test_caught_by_another_invariant_is_not_caught() -> None:
    found = row("violated", gradient_exactness=("pass", 0), fencing=("violated", 3))
    assert (found.caught, found.outcome, found.said) == (False, "NOT CAUGHT", "violated: fencing")


def test_a_pass_is_not_caught() -> None:
    assert not row("pass", gradient_exactness=("pass", 0)).caught


def test_unknown_where_it_should_be() -> None:
    found = row("unknown", WITHHELD, gradient_exactness=("unknown", 0))
    assert (found.caught, found.outcome, found.said) == (
        True,
        "unknown as it should",
        "gradient exactness: nothing was checked",
    )
    assert not row("violated", WITHHELD, gradient_exactness=("violated", 2)).caught
    assert not row("pass", WITHHELD).caught


def test_the_document_of_a_verifier_will_do() -> None:
    told = document("violated", gradient_exactness=("violated", 2))
    told["invariants"] = [{"name": name, **entry} for name, entry in told["invariants"].items()]
    assert row_of(BUG, "sim", "ring", 0.1, told).caught


def test_exit_codes() -> None:
    good, bad = row("violated", gradient_exactness=("violated", 6)), row("pass", gradient_exactness=("pass", 0))
    stuck = row_of(BUG, "local", "ring", 9.0, None, "no port")
    assert exit_code([good]) is ExitCode.PASS
    assert exit_code([good, bad, stuck]) is ExitCode.VIOLATED
    assert exit_code([good, stuck]) is ExitCode.UNKNOWN
    assert exit_code([]) is ExitCode.UNKNOWN


def test_the_table() -> None:
    good, stuck = row("violated", gradient_exactness=("violated", 6)), row_of(BUG, "local", "ps", 9.0, None, "no port")
    assert header().split()[0] == "bug"
    for word in ("mean-of-means", "clean", "caught: step 6, worker-2", "gradient exactness", "0.4", BUG.what):
        assert word in line_of(good)
    assert summary([good, stuck]) == [
        "NOT RUN: mean-of-means (ps, clean): no port",
        "1 planted bugs in 2 runs: 1 not as they should be.",
    ]
    assert document_of([good, stuck])["rows"][1]["outcome"] == "NOT RUN"


def test_how_many_random_schedules_it_takes() -> None:
    row_found = dataclasses.replace(row("violated", gradient_exactness=("violated", 6)), runs_max=9, runs_to_find=3)
    hidden, unasked = dataclasses.replace(row_found, runs_to_find=None), dataclasses.replace(row_found, runs_max=0)
    assert [one.found for one in (row_found, hidden, unasked)] == ["3", "not in 9", ""]
    assert "under random schedules: 2 looked for, 1 not found; median runs to find: 3" in summary([row_found, hidden])
    assert document_of([row_found, hidden])["median_runs_to_find"] == 3
    head, line, one, *_ = markdown([row_found, hidden])
    assert head.startswith("| bug |")
    assert set(line) <= set("| -")
    cells = "gradient exactness | clean, ring | caught: step 6, worker-2 | 3 |"
    assert one == f"| `mean-of-means` | {BUG.what} | {cells}"


def test_a_changed_row_says_what_it_is() -> None:
    stuck = dataclasses.replace(row("violated", gradient_exactness=("violated", 6)), trouble="no port")
    assert stuck.outcome == "NOT RUN"


# ---------------------------------------------------------------- the commands


def test_the_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mutations", "--only", "one-ulp", "--only", "evidence-withheld", "--strategy", "both"]) == 0
    out = capsys.readouterr().out.splitlines()
    assert len(out) == 1 + 4 + 1
    assert out[-1] == "2 planted bugs in 4 runs: every one is caught as it should be."


def test_the_command_looks_under_random_schedules_too(capsys: pytest.CaptureFixture[str]) -> None:
    only = ["--only", "one-ulp", "--only", "history-tail-cut", "--only", "resumed-without-velocity"]
    assert run_command(["mutations", *only, "--runs-to-find", "4", "--markdown"]) == 0
    told = capsys.readouterr()
    rows = [line.split(" | ") for line in told.out.splitlines()[2:]]
    assert [cells[0] for cells in rows] == ["| `one-ulp`", "| `history-tail-cut`", "| `resumed-without-velocity`"]
    assert all(cells[-1] in ("1 |", "2 |", "3 |", "4 |") for cells in rows)
    assert "3 looked for, 0 not found" in told.err


def test_the_command_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mutations", "--only", "one-ulp", "--json"]) == 0
    told = json.loads(capsys.readouterr().out)
    assert (told["schema"], told["bugs"], told["caught"]) == ("gradstorm.mutations/1", 1, 1)
    assert told["rows"][0]["at"] == "step 5, worker-2"


def test_what_the_command_refuses(capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["mutations", "--only", "one-ulpp"]) == 2
    assert "did you mean 'one-ulp'" in capsys.readouterr().err
    assert run_command(["mutations", "--strategy", "star"]) == 2


def test_a_clean_run_with_a_bug_goes_red(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    code = run_command(["run", "clean", "--plant", "mean-of-means", "--out", str(tmp_path / "run")])
    out = capsys.readouterr().out
    assert code == 1
    assert "VIOLATED: gradient exactness: step 6, worker-1" in out
    assert f"gradstorm replay {tmp_path / 'run'}" in out
