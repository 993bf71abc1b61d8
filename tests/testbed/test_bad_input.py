"""Bad input: one clear line, exit code 2 or 3, nothing started and nothing left."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from testbed.cli import run_command

SCENARIO = """\
name: mine
title: A scenario of mine
training: {steps: 6}
faults:
  - kind: kill
    target: worker-2
    trigger: {step: 3, phase: offer}
"""

Prepare = Callable[[Path], list[str]]


def scenario_with(old: str, new: str) -> Prepare:
    """Run the scenario with one text replaced."""

    def prepare(folder: Path) -> list[str]:
        assert old in SCENARIO
        (folder / "mine.yaml").write_text(SCENARIO.replace(old, new))
        return ["run", "mine.yaml"]

    return prepare


def csv_with(text: str) -> Prepare:
    """Run on a CSV file with this content."""

    def prepare(folder: Path) -> list[str]:
        (folder / "data.csv").write_text(text)
        return ["run", "clean", "--data", "data.csv"]

    return prepare


def nan_in_npz(folder: Path) -> list[str]:
    features = np.ones((8, 2))
    features[5, 1] = np.nan
    np.savez(folder / "data.npz", features=features, labels=np.arange(8) % 2)
    return ["run", "clean", "--data", "data.npz"]


def folder_that_exists(folder: Path) -> list[str]:
    (folder / "taken").mkdir()
    return ["run", "clean", "--out", "taken"]


def checkpoint_of_another_model(folder: Path) -> list[str]:
    assert run_command(["run", "clean", "--steps", "4", "--out", "earlier"]) == 0
    return ["run", "clean", "--model", "mlp:4", "--steps", "8", "--resume", "earlier"]


def resume_at_the_end(folder: Path) -> list[str]:
    assert run_command(["run", "clean", "--steps", "4", "--out", "earlier"]) == 0
    return ["run", "clean", "--steps", "4", "--resume", "earlier"]


def plain(*arguments: str) -> Prepare:
    """The arguments as they are."""
    return lambda folder: list(arguments)


CASES: dict[str, tuple[Prepare, tuple[str, ...]]] = {
    "unknown key": (scenario_with("target:", "traget:"), ("mine.yaml:6", "traget", "target")),
    "unknown fault": (scenario_with("kind: kill", "kind: kil"), ("mine.yaml:5", "kil", "kill")),
    "no such worker": (scenario_with("worker-2", "worker-9"), ("mine.yaml:6", "worker-9")),
    "unknown phase": (scenario_with("offer", "ofer"), ("mine.yaml:7", "ofer", "offer")),
    "broken YAML": (scenario_with("title:", "title: ["), ("mine.yaml:",)),
    "no workers": (plain("run", "clean", "--workers", "0"), ("workers",)),
    "a fault that no longer fits": (plain("run", "kill-worker", "--workers", "1"), ("worker-2",)),
    "no such scenario": (plain("run", "claen"), ("claen", "clean")),
    "no such file": (plain("run", "none.yaml"), ("none.yaml", "No such file")),
    "no such engine": (plain("run", "clean", "--engine", "simm"), ("simm", "sim")),
    "a matrix of several hosts": (plain("matrix", "--engine", "lan"), ("sim, local or containers", "plan")),
    "a soak of several hosts": (plain("soak", "--engine", "lan"), ("sim, local or containers", "plan")),
    "a soak of shards": (plain("soak", "--strategy", "shards"), ("'shards'", "ring or ps")),
    "a seed beyond 64 bits": (plain("soak", "--seed", "9" * 20), ("--seed", "9223372036854775807")),
    "a sweep of a crowd": (plain("sweep", "--workers", "3-65"), ("'3-65'", "at most 64 workers")),
    "a sweep with an unknown bug": (plain("sweep", "--plant", "one-ulpp"), ("'one-ulpp'", "did you mean 'one-ulp'?")),
    "experiments of several hosts": (plain("experiments", "--engine", "lan"), ("sim, local or containers", "plan")),
    "no such strategy": (plain("run", "clean", "--strategy", "rung"), ("rung", "ring")),
    "no such option": (plain("run", "clean", "--worker", "3"), ("--worker",)),
    "no such model": (plain("run", "clean", "--model", "mlp:0"), ("mlp:0",)),
    "a model that is too large": (plain("run", "clean", "--model", "mlp:99999999"), ("too large", "33554432")),
    "no such data": (plain("run", "clean", "--data", "mnist"), ("mnist", "digits")),
    "data file missing": (plain("run", "clean", "--data", "none.csv"), ("none.csv",)),
    "no such plant": (plain("run", "clean", "--plant", "mean-of-mean"), ("mean-of-mean", "mean-of-means")),
    "no such run": (plain("replay", "nothing"), ("nothing", "runs list")),
    "no such run to resume": (plain("run", "clean", "--resume", "nothing"), ("nothing",)),
    "steps not a number": (plain("run", "clean", "--steps", "many"), ("--steps", "integer")),
    "negative rate": (plain("run", "clean", "--lr", "-1"), ("learning_rate",)),
    "text in a number column": (csv_with("x,y,label\n1,2,0\n1,red,1\n3,4,0\n"), ("data.csv", "line 3", "red")),
    "NaN in a CSV": (csv_with("x,y,label\n1,2,0\n1,nan,1\n3,4,0\n"), ("data.csv", "line 3", "nan")),
    "NaN in an npz": (nan_in_npz, ("data.npz", "row", "nan")),
    "a run folder that exists": (folder_that_exists, ("taken", "exists")),
    "a checkpoint of another model": (checkpoint_of_another_model, ("another model", "softmax", "mlp")),
    "nothing left to do": (resume_at_the_end, ("step 4", "--steps")),
}


@pytest.mark.parametrize("name", CASES)
def test_bad_input(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("GRADSTORM_HOME", raising=False)
    prepare, told = CASES[name]
    arguments = prepare(tmp_path)
    capsys.readouterr()
    before = sorted(tmp_path.rglob("*"))
    code = run_command(arguments)
    output = capsys.readouterr()
    assert code in (2, 3), output.err
    assert output.out == ""
    assert len(output.err.splitlines()) == 1, output.err
    assert "Traceback" not in output.err
    for part in told:
        assert part in output.err
    assert sorted(tmp_path.rglob("*")) == before
