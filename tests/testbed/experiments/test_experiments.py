"""Baseline and experiments from the command line: equal digit for digit, resumable, and changed files are refused."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from testbed.cli import run_command
from testbed.experiments.baseline import experiments_folder, read_committed
from testbed.experiments.matrix import read_matrix, scenario_of
from testbed.experiments.summary import csv_of, document_of, findings, table_of
from training.boundary_codec.feedback import WHY_UNSUPPORTED

COMMITTED = experiments_folder()
ROWS = ["control", "delay-1ms", "delay-2ms", "jitter-reorder", "decay-1ms", "decay-2ms", "decay-jitter-reorder"]
ROWS += [f"top25-{bits}bit" for bits in (4, 6, 8, 12)] + [f"top50-{bits}bit" for bits in (12, 8, 6, 4)]
ROWS += [f"top50-{bits}bit-decay-{how}" for bits in (6, 4) for how in ("1ms", "2ms", "jitter-reorder")]
ROWS += ["measured-latency"]


def experiments(out: Path, capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any], str]:
    code = run_command(["experiments", "--steps", "3", "--out", str(out), "--json", *arguments])
    said = capsys.readouterr()
    return code, json.loads(said.out) if said.out else {}, said.err


def test_the_matrix_has_the_rows_of_the_design_and_each_is_a_sound_scenario() -> None:
    matrix, committed = read_matrix(COMMITTED), read_committed(COMMITTED)
    assert [row.name for row in matrix.rows] == ROWS
    for row in matrix.rows:
        assert scenario_of(row, matrix, committed.baseline).training.steps == 100


def test_control_and_delay_equal_the_baseline_and_nothing_is_run_twice(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, first, said = experiments(tmp_path / "x", capsys, "--only", "control", "--only", "delay-1ms")
    assert code == 0, said
    assert [row["name"] for row in first["rows"]] == ["control", "delay-1ms"]
    assert {row["final_eval_loss"] for row in first["rows"]} == {first["baseline"]["final_eval_loss"]}
    assert (
        {row["delta_to_baseline"] for row in first["rows"]}
        == {row["delta_to_control"] for row in first["rows"]}
        == {0.0}
    )
    assert all(item["holds"] for item in first["findings"])
    assert first["rows"][1]["ages"] == {"1": 12}
    code, again, said = experiments(tmp_path / "x", capsys, "--only", "control", "--only", "delay-1ms")
    assert (code, again["rows"]) == (0, first["rows"])
    assert said.count("(kept from before)") == 2
    assert (tmp_path / "x" / "summary.csv").read_text() == csv_of(again)


def test_a_row_that_was_kept_is_compared_with_one_that_is_run_now(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, said = experiments(tmp_path / "x", capsys, "--only", "control")
    assert code == 0, said
    code, document, said = experiments(tmp_path / "x", capsys, "--only", "control", "--only", "delay-1ms")
    assert said.count("(kept from before)") == 1
    assert (code, {item["claim"]: item["holds"] for item in document["findings"]}) == (
        0,
        {"control equals the baseline digit for digit": True, "delay-1ms: curve identical to the control": True},
    )


def test_interrupted_it_says_that_the_same_command_goes_on(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "testbed.cli", "experiments", "--only", "control", "--out", str(tmp_path / "x")]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        assert process.stderr.readline().startswith("baseline: ")
        process.terminate()  # as Ctrl-C does, even where the test runner's shell lets its children ignore that
        said = process.stderr.read()
    assert process.returncode == 130
    assert said.startswith("interrupted; rows that are done are in ")


def test_a_row_alone_is_measured_against_the_baseline(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, document, _ = experiments(tmp_path / "x", capsys, "--only", "top50-6bit")
    (row,) = document["rows"]
    assert (code, document["control_was_run"], row["verdict"]) == (0, False, "pass")
    assert row["delta_to_control"] == row["delta_to_baseline"] != 0.0
    values = 8 * 64 * 32
    assert row["payload_bytes"] == 16 + values // 8 + values // 2 * 6 // 8  # header, bitmap, six bits for every other
    assert row["ratio"] == 8 * values / row["payload_bytes"]
    assert row["density"] <= 0.5
    assert not (tmp_path / "x" / "runs" / "top50-6bit").exists()


def test_the_row_of_measured_ages_is_run_with_late_links(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    chosen = ["--only", "measured-latency", "--steps", "7"]
    code, document, said = experiments(tmp_path / "x", capsys, *chosen)
    (row,) = document["rows"]
    assert (code, row["verdict"], row["ages_are"]) == (0, "pass", "measured"), said
    assert row["ages"] == {"0": 4 * 5, "1": 4 * 2}  # two cuts, both ways; late from step 2 to the last but 3
    code, _, said = experiments(tmp_path / "y", capsys, *chosen, "--in-process")
    assert code == 2
    assert "row measured-latency cannot be run: its ages are measured, which takes a run" in said


def test_a_row_that_cannot_be_run_here_is_left_out_aloud(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "matrix.yaml"
    document = yaml.safe_load(path.read_text())
    document["rows"] = [row for row in document["rows"] if row["name"] in ("control", "measured-latency")]
    path.write_text(yaml.safe_dump(document))
    code, told, said = experiments(folder / "x", capsys, "--in-process", "--dir", str(folder), "--steps", "7")
    why = "its ages are measured, which takes a run"
    assert (code, told["left_out"]) == (4, [{"name": "measured-latency", "why": why}])
    assert f"measured-latency is left out: {why}" in said
    (row,) = told["rows"]
    assert (row["name"], row["verdict"]) == ("control", "unknown")
    assert row["reasons"] == ["computed in one process; nothing was verified"]


def test_an_unknown_row_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, _, said = experiments(tmp_path / "x", capsys, "--only", "top50-6bits")
    assert (code, said) == (2, "gradstorm: no experiment is called 'top50-6bits'; did you mean 'top50-6bit'?\n")


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (("--steps", "0"), "Invalid value for '--steps'"),
        (("--seed", "-1"), "Invalid value for '--seed'"),
        (("--seed", str(2**63)), "Invalid value for '--seed'"),
        (("--engine", "lan"), "experiments run on sim, local or containers"),
        (("--engine", "cloud"), "no engine 'cloud'"),
        (("--only", "measured-latency"), "row measured-latency needs 5 steps"),
    ],
)
def test_what_cannot_be_is_refused_and_leaves_nothing(
    arguments: tuple[str, ...], told: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code, document, said = experiments(tmp_path / "x", capsys, *arguments)
    assert (code, document) == (2, {})
    assert told in said
    assert list(tmp_path.iterdir()) == []


@pytest.mark.containers
@pytest.mark.slow
@pytest.mark.timeout(300)
def test_a_row_in_containers_has_the_digits_of_the_simulator(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    row = ["--only", "top50-6bit-decay-1ms"]
    code, sim, _ = experiments(tmp_path / "sim", capsys, *row)
    assert code == 0
    code, document, said = experiments(tmp_path / "containers", capsys, *row, "--engine", "containers")
    assert (code, document["engine"]) == (0, "containers"), said
    for key in ("verdict", "params_sha256", "evaluation_curve", "payload_bytes", "ages", "delta_to_baseline"):
        assert document["rows"][0][key] == sim["rows"][0][key], key


def test_findings_say_what_does_not_hold() -> None:
    def row(name: str, loss: float, curve: int = 0) -> dict[str, Any]:
        return {"name": name, "final_eval_loss": loss, "evaluation_curve": [curve], "ages": {}, "verdict": "pass"}

    rows = [row("control", 2.0), row("delay-1ms", 2.0, 1), row("top50-4bit", 2.2)]
    rows += [row("top50-4bit-decay-1ms", 2.1), row("top50-4bit-decay-2ms", 2.3)]
    baseline = {"final_eval_loss": 2.5, "committed_eval_loss": 2.5, "within_tolerance": True}
    found = {item["claim"]: item["holds"] for item in findings({one["name"]: one for one in rows}, baseline)}
    assert found == {
        "control equals the baseline digit for digit": False,
        "delay-1ms: curve identical to the control": False,
        "top50-4bit: compression only < 1 ms decay < 2 ms decay": False,
    }
    assert sum("DOES NOT HOLD" in line for line in table_of(document_of("sim", rows, baseline))) == 3


# ---------------------------------------------------------------- baseline


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of the committed files, with few steps."""
    copy = tmp_path / "experiments"
    shutil.copytree(COMMITTED, copy)
    config = json.loads((copy / "baseline_config.json").read_text())
    (copy / "baseline_config.json").write_text(json.dumps({**config, "steps": 10}))
    curve = (copy / "baseline_curve.csv").read_text().splitlines(keepends=True)
    (copy / "baseline_curve.csv").write_text("".join(curve[:12]))
    return copy


def test_the_baseline_is_within_the_tolerance(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run_command(["baseline", "--dir", str(folder), "--json"]) == 0
    document = json.loads(capsys.readouterr().out)
    assert document["within_tolerance"]
    assert document["repeatable"]
    assert abs(document["final_eval_loss"] - document["committed_eval_loss"]) <= 1e-9


def test_another_curve_is_a_violation(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "baseline_curve.csv"
    lines = path.read_text().splitlines()
    step, loss, evaluated = lines[-1].split(",")
    path.write_text("\n".join([*lines[:-1], f"{step},{loss},{float(evaluated) + 2e-9!r}"]))
    assert run_command(["baseline", "--dir", str(folder)]) == 1
    assert "DIFFERS FROM" in capsys.readouterr().out


def test_a_changed_evaluation_artifact_is_refused_by_its_hash(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = folder / "evaluation_batch.json"
    path.write_text(path.read_text().replace("[10,19,", "[10,20,", 1))
    for command in (["baseline"], ["experiments", "--out", str(folder / "out")]):
        assert run_command([*command, "--dir", str(folder)]) == 2
        assert "evaluation_batch.json was changed: its tokens have SHA-256" in capsys.readouterr().err


def test_the_diagnostic_is_marked_unsupported(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    command = ["experiments", "--diagnostic", "--dir", str(folder), "--json"]
    assert run_command(command) == 0
    rows = json.loads(capsys.readouterr().out)["rows"]
    assert [row["name"] for row in rows] == ["top25-8bit-error-feedback", "top10-4bit-error-feedback"]
    assert all(row["supported"] is False and row["why"] == WHY_UNSUPPORTED for row in rows)
    assert all(row["delta_to_no_feedback"] != 0.0 for row in rows)


@pytest.mark.parametrize("option", [("--steps", "0"), ("--steps", "-3"), ("--seed", "-1")])
def test_numbers_that_cannot_be_are_refused_in_a_line(
    option: tuple[str, str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    code = run_command(["experiments", "--out", str(tmp_path / "x"), *option])
    (line,) = capsys.readouterr().err.splitlines()
    assert (code, option[0] in line, (tmp_path / "x").exists()) == (2, True, False)
