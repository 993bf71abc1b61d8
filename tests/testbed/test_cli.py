"""The command line from the outside: codes, streams, documents."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import pytest

from testbed.cli import main, run_command
from testbed.exit_codes import ExitCode, exit_code_of

KEYS = (
    "schema run_id run_dir engine strategy seed verdict steps_committed steps_checked kills generations params_sha256"
    " final_loss final_accuracy worst_gradient_error noise_floor tolerance smallest_detectable_bug invariants faults"
    " observations samples numerics"
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Each test has runs of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADSTORM_HOME", raising=False)
    return tmp_path


def command(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """(exit code, stdout, stderr) of one command line."""
    capsys.readouterr()
    code = run_command(arguments)
    output = capsys.readouterr()
    return code, output.out, output.err


def document(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, dict[str, Any]]:
    """Exit code and the one JSON document on stdout."""
    code, out, _ = command(capsys, *arguments, "--json")
    return code, json.loads(out)


def test_a_pass_has_everything(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "run", "kill-worker")
    assert code == 0
    assert [key for key in KEYS.split() if key not in found] == []
    assert found["schema"] == "gradstorm.run/1"
    assert (found["verdict"], found["kills"], found["generations"]) == ("pass", 1, 2)
    assert set(found["samples"]) == {"epochs", "committed", "lost", "repeated"}
    assert all(set(entry) >= {"verdict", "checked", "first_violation"} for entry in found["invariants"].values())
    (fault,) = found["faults"]
    assert fault["witness"]["exit_code"] == -9
    assert found["worst_gradient_error"] <= 4 * found["noise_floor"]
    assert json.loads((Path(found["run_dir"]) / "verdict.json").read_text()) == found


def test_the_report_ends_with_a_sentence_and_has_no_colour(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "run", "clean")
    assert code == 0
    assert out.splitlines()[-1].startswith("PASS: 16 of 16 steps proved, every invariant holds; open ")
    assert "coordinator: finished at step 16" in err
    assert "\x1b" not in out + err


@pytest.mark.parametrize("size", [26, 27, 1000])
def test_a_batch_that_the_data_cannot_fill_is_said(size: int, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "run", "clean", "--batch", str(size), "--steps", "4", "--out", "run")
    note = f"{size} for each of 4 workers, and there are 107 samples to train on"
    said = 4 * size > 107
    assert code == 0
    assert (f"batch: {note}" in err) is said
    assert (f"  batch       {note}" in out) is said
    assert (note in (Path("run") / "report.html").read_text()) is said
    assert document(capsys, "verify", "run")[1]["batch_note"].startswith(note) is said


def test_a_violation_says_where_to_look(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = command(capsys, "run", "clean", "--plant", "mean-of-means", "--out", "red")
    assert code == 1
    assert "VIOLATED: gradient exactness: step " in out
    assert ", worker-" in out
    assert "active faults then: none" in out
    assert f"run folder: {Path('red').resolve()}" in out
    assert f"gradstorm replay {Path('red').resolve()}" in out
    code, found = document(capsys, "replay", "red")
    assert (code, found["same"]) == (1, {"params_sha256": True, "history": True})
    code, found = document(capsys, "verify", "red")
    assert (code, found["verdict"], found["saved_verdict"]) == (1, "violated", "violated")


def test_what_cannot_be_known_says_why_and_is_short(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = command(capsys, "run", "kill-worker", "--lr", "1e300", "--out", "huge")
    saved = json.loads(Path("huge/verdict.json").read_text())
    assert (code, saved["verdict"]) == (4, "unknown")
    assert any(
        reason.startswith("gradient exactness: step 2: its parameters are so large") for reason in saved["reasons"]
    )
    assert out.count("so large that rounding alone") == len(saved["invariants"]["gradient exactness"]["reasons"])
    last = out.splitlines()[-1]
    assert last.startswith("UNKNOWN: it is not known whether gradient exactness held, 1 of 16 steps checked; open ")
    assert re.search(r"loss \d\.\d+e\+\d+, accuracy", out)
    assert not re.search(r"\d{100}", out + err)


def test_a_replay_compares_only_what_can_be_equal(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "run", "clean", "--out", "first")[0] == 0
    verdict = Path("first/verdict.json")
    saved = json.loads(verdict.read_text())
    verdict.unlink()  # as an interrupted run leaves it
    code, out, _ = command(capsys, "replay", "first")
    assert (code, "no verdict, so there is nothing to compare" in out.splitlines()[-1], "DIFFERS" in out) == (
        0,
        True,
        False,
    )
    verdict.write_text(json.dumps(saved | {"final_step": 8}))
    assert "ended at step 8, the replay at step 16" in command(capsys, "replay", "first")[1]
    verdict.write_text(json.dumps(saved | {"params_sha256": "0" * 64}))
    code, out, _ = command(capsys, "replay", "first")
    assert (code, "params_sha256 DIFFERS, history identical" in out) == (1, True)
    code, found = document(capsys, "replay", "first")
    assert (code, found["exit_code"], found["verdict"]) == (1, 1, "pass")


@pytest.mark.parametrize("bare", [(), ("runs",)])
def test_a_bare_command_prints_its_help_and_no_empty_complaint(
    bare: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    code, out, err = command(capsys, *bare)
    assert (code, "Usage: gradstorm" in out + err, "gradstorm:" in err) == (2, True, False)


def test_an_error_of_our_own_is_no_violation(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(_: object) -> int:
        raise AssertionError("that cannot be")

    monkeypatch.setattr("testbed.cli.run_command", broken)
    with pytest.raises(SystemExit) as ended:
        main(["scenarios"])
    assert ended.value.code == 70
    said = capsys.readouterr().err.splitlines()
    assert said[-2:] == [
        "AssertionError: that cannot be",
        "gradstorm: this is an error of Gradstorm's own; please report it with the lines above",
    ]


def test_a_wrong_option_points_to_the_help_of_its_command(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "run", "clean", "--bogus")[2].endswith("(see gradstorm run --help)\n")
    assert command(capsys, "runs", "list", "--bogus")[2].endswith("(see gradstorm runs list --help)\n")
    assert command(capsys, "bogus")[2].endswith("(see gradstorm --help)\n")


def test_mutations_refuses_an_engine_at_once(capsys: pytest.CaptureFixture[str]) -> None:
    refusal = "gradstorm: no mutations on engine 'containers'; choose sim or local\n"
    assert command(capsys, "mutations", "--engine", "containers") == (2, "", refusal)


def test_a_file_in_the_way_of_a_run_folder_is_named(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    (home / "file").write_text("mine")
    for out in ("file/sub", "file/deep/sub"):
        code, _, err = command(capsys, "run", "clean", "--out", out)
        assert (code, f"{out} cannot be made: file is no folder" in err, "exists already" in err) == (2, True, False)
    monkeypatch.setenv("GRADSTORM_HOME", str(home / "file"))
    code, _, err = command(capsys, "run", "clean")
    assert (code, f"{home / 'file'} is no folder" in err) == (2, True)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("kill-worker", "--text", "mine.txt"), "--text is for layer-sharded scenarios; kill-worker is data-parallel"),
        (("clean", "--attach", "worker-1=1.2.3.4:5"), "--attach goes together with --engine lan, not with sim"),
    ],
)
def test_options_of_other_runs_are_refused_by_name(
    options: tuple[str, ...], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    code, _, err = command(capsys, "run", *options)
    assert (code, said in err) == (2, True)


def test_what_did_not_begin_leaves_nothing(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, home: Path
) -> None:
    monkeypatch.setenv("DOCKER_HOST", f"unix://{home}/nobody.sock")
    code, _, err = command(capsys, "matrix", "clean")
    assert (code, "need no Docker" in err) == (3, True)
    assert command(capsys, "run", "clean", "--engine", "containers")[0] == 3
    assert list((home / "runs").iterdir()) == []


def test_what_is_missing_is_unknown(capsys: pytest.CaptureFixture[str]) -> None:
    assert command(capsys, "run", "clean", "--out", "cut")[0] == 0
    history = Path("cut/history.jsonl")
    lines = history.read_bytes().splitlines(keepends=True)
    history.write_bytes(b"".join(lines[:40] + lines[41:]))
    code, out, _ = command(capsys, "verify", "cut")
    assert code == 4
    assert "UNKNOWN" in out.splitlines()[-2]
    assert out.splitlines()[-1] == "Judged again from the history: then it was pass."


def test_the_same_options_as_in_the_scenario(capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--strategy", "ps", "--workers", "3", "--seed", "5", "--steps", "4", "--batch", "2", "--lr", "0.05"]
    code, found = document(capsys, "run", "clean", "--model", "mlp:4", "--data", "digits", *options)
    assert code == 0
    assert (found["strategy"], found["seed"], found["steps_committed"]) == ("ps", 5, 4)
    assert found["samples"]["committed"] == 4 * 3 * 2


def test_scenarios(capsys: pytest.CaptureFixture[str], home: Path) -> None:
    code, found = document(capsys, "scenarios")
    assert code == 0
    assert all(set(row) >= {"name", "title", "engines", "strategies", "fixed"} for row in found["scenarios"])
    code, out, _ = command(capsys, "scenarios", "show", "kill-worker")
    assert code == 0
    (home / "mine.yaml").write_text(out)
    assert command(capsys, "run", "mine.yaml")[0] == 0


def test_runs(capsys: pytest.CaptureFixture[str]) -> None:
    for seed in ("1", "2", "3"):
        assert command(capsys, "run", "clean", "--steps", "4", "--seed", seed)[0] == 0
    code, found = document(capsys, "runs", "list")
    assert code == 0
    assert [run["verdict"] for run in found["runs"]] == ["pass"] * 3
    code, out, _ = command(capsys, "runs", "prune", "--keep", "1")
    assert code == 0
    assert "2 runs removed" in out
    assert len(document(capsys, "runs", "list")[1]["runs"]) == 1


def test_doctor_and_version(capsys: pytest.CaptureFixture[str]) -> None:
    code, found = document(capsys, "doctor")
    assert code == 0
    names = {finding["name"] for finding in found["findings"]}
    assert names >= {"python", "cores", "memory", "disk", "BLAS", "ports", "file descriptors", "gRPC", "docker"}
    code, out, _ = command(capsys, "--version")
    assert (code, out.split()[0]) == (0, "gradstorm")


@pytest.mark.parametrize(
    ("verdict", "condition", "code"),
    [
        ("pass", "finished", ExitCode.PASS),
        ("violated", "finished", ExitCode.VIOLATED),
        ("violated", "disk ENOSPC", ExitCode.VIOLATED),
        ("unknown", "finished", ExitCode.UNKNOWN),
        ("unknown", "", ExitCode.UNKNOWN),
        ("unknown", "nobody left", ExitCode.STOPPED),
        ("pass", "nobody left", ExitCode.STOPPED),
    ],
)
def test_exit_codes(verdict: str, condition: str, code: ExitCode) -> None:
    assert exit_code_of(verdict, condition) is code
