"""The run folder: refused when it exists, whole at any moment, found by name, and pruned without touching others."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from testbed.engines.base import EngineError
from testbed.run_folder import (
    RunFolder,
    RunFolderError,
    find_run,
    folder_for,
    list_runs,
    new_run_id,
    process_marker,
    prune,
    write_json,
)
from training.errors import ConfigurationError


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Where runs are kept in this test."""
    monkeypatch.setenv("GRADSTORM_HOME", str(tmp_path / "kept"))
    return tmp_path / "kept"


def make_run(home: Path, name: str, started_at: str, verdict: str = "pass", **more: object) -> RunFolder:
    """A run as the CLI leaves it."""
    folder = RunFolder.create(home / name)
    folder.write_manifest(
        {"started_at": started_at, "scenario": "clean", "engine": "sim", "strategy": "ring", "seed": 7, **more}
    )
    if verdict:
        folder.write_verdict({"verdict": verdict})
    return folder


def test_a_folder_that_exists_is_refused(tmp_path: Path) -> None:
    RunFolder.create(tmp_path / "a" / "run")
    with pytest.raises(ConfigurationError, match="exists already"):
        RunFolder.create(tmp_path / "a" / "run")
    with pytest.raises(ConfigurationError, match="exists already"):
        folder_for("id", tmp_path / "a" / "run")


def test_a_simulated_run_has_the_same_id_again_and_a_free_folder(home: Path) -> None:
    ids = {new_run_id("sim", "two killed.yaml", "ring", 7, "abcdef0123456789") for _ in range(2)}
    assert ids == {"two-killed.yaml-ring-sim-s7-abcdef01"}
    (name,) = ids
    assert folder_for(name, None) == home / name
    RunFolder.create(home / name)
    assert folder_for(name, None) == home / f"{name}.2"


def test_other_runs_have_unique_ids() -> None:
    assert len({new_run_id("local", "clean", "ps", 1, "") for _ in range(20)}) == 20


def test_documents_are_whole(tmp_path: Path) -> None:
    path = tmp_path / "verdict.json"
    write_json(path, {"verdict": "pass"})
    write_json(path, {"verdict": "violated"})
    assert path.read_text() == '{\n  "verdict": "violated"\n}\n'
    assert [file.name for file in tmp_path.iterdir()] == ["verdict.json"]
    with pytest.raises(ValueError, match="not JSON compliant"):
        write_json(path, {"loss": float("nan")})


def test_runs_are_found(home: Path, tmp_path: Path) -> None:
    first = make_run(home, "clean-ring-sim-s7-aa", "2026-01-01T00:00:00")
    second = make_run(home, "clean-ps-sim-s7-bb", "2026-01-02T00:00:00")
    assert find_run(str(first.path)) == first
    assert find_run("clean-ring-sim-s7-aa") == first
    assert find_run("clean-ps") == second
    assert find_run("latest") == second
    for name, complaint in (("clean", "could be any of"), ("other", "no run 'other'"), (str(tmp_path), "not a run")):
        with pytest.raises(RunFolderError, match=complaint):
            find_run(name)


def test_what_the_list_says(home: Path) -> None:
    make_run(home, "c", "2026-01-03T00:00:00", verdict="", driver=process_marker())
    make_run(home, "b", "2026-01-02T00:00:00", verdict="", driver={"pid": 1, "created": 1.0})
    make_run(home, "a", "2026-01-01T00:00:00")
    (RunFolder.create(home / "d").path / "manifest.json").write_text("{")
    assert {run.name: run.verdict for run in list_runs()} == {
        "a": "pass",
        "b": "unfinished",
        "c": "running",
        "d": "unreadable",
    }


def test_prune_leaves_the_newest_the_running_and_what_is_not_ours(home: Path) -> None:
    make_run(home, "running", "2026-01-01T00:00:00", verdict="", driver=process_marker())
    for day in range(2, 6):
        make_run(home, f"run-{day}", f"2026-01-0{day}T00:00:00")
    (home / "notes").mkdir()
    (home / "notes" / "manifest.json").write_text('{"kind": "something else"}')
    assert [run.name for run in prune(2)] == ["run-2", "run-3"]
    assert sorted(path.name for path in home.iterdir()) == ["notes", "run-4", "run-5", "running"]


def test_a_run_whose_folder_takes_no_data_says_which_folder_and_starts_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(RunFolder, "dataset_path", property(lambda folder: folder.path / "missing" / "dataset"))
    with pytest.raises(EngineError, match=r"cannot begin the run in .*run.*; nothing was started"):
        testbed.run("clean", steps=4, out=tmp_path / "run")


def test_one_planted_bug_may_be_named_alone(tmp_path: Path) -> None:
    assert testbed.run("clean", plant="mean-of-means", out=tmp_path / "run").verdict == "violated"
