"""Paths that cannot be: one line that says what, where and what to do, exit code 2, nothing started, nothing left."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest

from testbed.cli import run_command
from tests.unprivileged import unprivileged

LONG = "a" * 300

# where a folder is wanted -> what is said of it
PLACES = {
    "file/x": "file is no folder",
    "shut/x": "Permission denied",
    "full/x": "nothing can be written in",
    "nowhere/x": "nowhere is no folder",
    "circle/x": "Too many levels of symbolic links",
    LONG: "File name too long",
}
# what writes below a folder, at an end that takes it long to come to
WRITERS = (
    ("run", "clean"),
    ("replay", "earlier"),
    ("experiments", "--only", "control", "--in-process"),
    ("sweep", "--runs", "1000", "--jobs", "1"),
    ("matrix", "--engine", "sim"),
    ("soak", "--engine", "sim"),
)
# what reads a file, and the ending of its name
READERS = {
    ("run",): ".yaml",
    ("plan", "--hosts", "a"): ".yaml",
    ("matrix", "--engine", "sim"): ".yaml",
    ("run", "clean", "--data"): ".csv",
    ("run", "shards-clean", "--text"): ".txt",
    ("run", "clean", "--engine", "lan", "--attach"): ".list",
}
FILES = {
    "folder": "Is a directory",
    "shut/inside": "Permission denied",
    "secret": "Permission denied",
    "nowhere": "No such file or directory",
    "file/x": "Not a directory",
    "pipe": "is a pipe or a device; give a file",
    LONG: "File name too long",
}
RUNS = {
    "shut": "cannot read a run at shut: Permission denied",
    "no-history": "history.jsonl: Is a directory",
    "no-verdict": "verdict.json: Permission denied",
    "folder.yaml": "folder.yaml is a folder without manifest.json",
    "file": "no run 'file'",
    LONG: "File name too long",
}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A folder with an earlier run, and everything that can be in the way."""
    home = tmp_path_factory.mktemp("paths")
    with pytest.MonkeyPatch.context() as patch, unprivileged():
        patch.chdir(home)
        patch.delenv("GRADSTORM_HOME", raising=False)
        patch.setenv("GRADSTORM_TOKEN", "a word")
        assert run_command(["run", "clean", "--steps", "4", "--out", "earlier"]) == 0
        for damaged in ("no-history", "no-verdict"):
            shutil.copytree("earlier", damaged)
        Path("no-history/history.jsonl").unlink()
        Path("no-history/history.jsonl").mkdir()
        Path("no-verdict/verdict.json").chmod(0)
        Path("file").write_text("a file", encoding="utf-8")
        Path("nowhere").symlink_to("gone")
        Path("circle").symlink_to("circle")
        for ending in READERS.values():
            Path(f"folder{ending}").mkdir(exist_ok=True)
            Path(f"secret{ending}").touch(mode=0)
            Path(f"nowhere{ending}").unlink(missing_ok=True)
            Path(f"nowhere{ending}").symlink_to("gone")
            Path(f"pipe{ending}").unlink(missing_ok=True)
            os.mkfifo(f"pipe{ending}")
        Path("shut").mkdir(mode=0)
        Path("full").mkdir(mode=0o555)
        yield home
        Path("shut").chmod(0o755)


def complaint(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> str:
    """The one line of a command that is refused, which leaves everything as it was."""
    before = sorted(Path().iterdir())
    capsys.readouterr()
    code = run_command(arguments)
    told = capsys.readouterr()
    assert code == 2, told.err
    assert told.out == ""
    assert len(told.err.splitlines()) == 1, told.err
    assert "Errno" not in told.err
    assert sorted(Path().iterdir()) == before
    return told.err


@pytest.mark.parametrize("out", PLACES)
@pytest.mark.parametrize("command", WRITERS, ids=lambda command: command[0])
def test_no_folder_can_be_made_there(
    command: tuple[str, ...], out: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = complaint([*command, "--out", out], capsys)
    assert out in told
    assert PLACES[out] in told
    assert "give --out or GRADSTORM_HOME another place" in told


@pytest.mark.parametrize(
    "command", [command for command in WRITERS if command[0] in ("experiments", "sweep", "matrix")]
)
def test_a_file_where_a_folder_of_results_should_be(
    command: tuple[str, ...], place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert "file cannot be made: file is no folder" in complaint([*command, "--out", "file"], capsys)


@pytest.mark.parametrize("name", FILES)
@pytest.mark.parametrize("command", READERS)
def test_no_file_can_be_read_there(
    command: tuple[str, ...], name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    told = complaint([*command, name + READERS[command]], capsys)
    assert name in told
    assert FILES[name] in told


@pytest.mark.parametrize("name", RUNS)
@pytest.mark.parametrize("command", [("verify",), ("report",), ("replay",), ("run", "clean", "--resume")])
def test_no_run_can_be_read_there(
    command: tuple[str, ...], name: str, place: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert RUNS[name] in complaint([*command, name], capsys)


def test_a_run_without_its_data_is_not_replayed(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree("earlier", "no-data")
    Path("no-data/dataset.safetensors").unlink()
    assert "dataset.safetensors: No such file" in complaint(["replay", "no-data"], capsys)


@pytest.mark.parametrize("command", [("runs", "list"), ("runs", "prune"), ("report",), ("run", "clean")])
@pytest.mark.parametrize("home", ["file", "file/x", "nowhere", "circle", "shut/x", LONG])
def test_a_home_that_is_no_folder(
    command: tuple[str, ...],
    home: str,
    place: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("GRADSTORM_HOME", home)
    told = complaint(list(command), capsys)
    assert home in told
    assert "GRADSTORM_HOME" in told


def test_a_run_that_is_shut_hides_no_other(
    place: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADSTORM_HOME", ".")
    assert run_command(["runs", "list"]) == 0
    listed = {line.split()[-1]: line for line in capsys.readouterr().out.splitlines()}
    assert "unreadable" in listed["shut"]
    assert "pass" in listed["earlier"]


def test_a_host_says_where_its_files_cannot_go(place: Path, capsys: pytest.CaptureFixture[str]) -> None:
    told = complaint(["worker", "--listen", "127.0.0.1:0", "--dir", "file/x"], capsys)
    assert "file is no folder; give --dir or GRADSTORM_HOME another place" in told
