"""Ctrl-C and SIGTERM, whatever the command is at: one line, exit code 130, no process left, no file half-written."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testbed.cli import run_command
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.local
ROOT = Path(__file__).resolve().parents[2]
BUSY_S = 1.5  # of processor time: by then it is past its imports, and none of these is done
COMMANDS = {
    "baseline": ("baseline", "--dir", "experiments", "--write"),
    "experiments": ("experiments", "--in-process"),
    "diagnostic": ("experiments", "--diagnostic"),
    "sweep": ("sweep", "--runs", "100000", "--jobs", "1"),
    "mutations": ("mutations",),
    "matrix": ("matrix", "--engine", "sim"),
    "soak": ("soak", "--engine", "sim", "--minutes", "60"),
    "bench": ("bench", "--only", "simulator"),
}
SAID = {
    "experiments": "interrupted; rows that are done are in ",
    "matrix": "interrupted after ",
}


def alive(process: psutil.Process) -> bool:
    return process.is_running() and process.status() != psutil.STATUS_ZOMBIE


@pytest.mark.parametrize(("how", "name"), [*((signal.SIGINT, name) for name in COMMANDS), (signal.SIGTERM, "baseline")])
def test_one_line_and_its_code(how: signal.Signals, name: str, tmp_path: Path) -> None:
    shutil.copytree(ROOT / "experiments", tmp_path / "experiments")
    committed = {path: path.read_bytes() for path in (tmp_path / "experiments").rglob("*") if path.is_file()}
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADSTORM_HOME": str(tmp_path / "home")}
    with (tmp_path / "err").open("w") as err, (tmp_path / "out").open("w") as out:
        command = subprocess.Popen(
            [sys.executable, "-m", "testbed.cli", *COMMANDS[name]],
            env=environment, stdout=out, stderr=err, cwd=tmp_path, start_new_session=True,
        )  # fmt: skip
        here = psutil.Process(command.pid)
        try:
            assert wait_until(lambda: here.cpu_times().user > BUSY_S, 90.0)
            children = here.children(recursive=True)
            command.send_signal(how)
            assert command.wait(30.0) == 130
        finally:
            command.kill()
    assert wait_until(lambda: not any(map(alive, children)), 5.0), children
    said = [line for line in (tmp_path / "err").read_text().splitlines() if "interrupted" in line]
    assert len(said) == 1, (tmp_path / "err").read_text()
    assert said[0].startswith(SAID.get(name, ("gradstorm: interrupted", "interrupted")))
    assert "Traceback" not in (tmp_path / "err").read_text()
    files = {path: path.read_bytes() for path in (tmp_path / "experiments").rglob("*") if path.is_file()}
    assert files.keys() == committed.keys()
    assert name == "baseline" or files == committed


def test_a_reader_that_is_gone_is_no_violation(tmp_path: Path) -> None:
    """`gradstorm scenarios | head -1`: code 1 would say that an invariant was violated."""
    command = subprocess.Popen(
        [sys.executable, "-m", "testbed.cli", "scenarios"], env={**os.environ, "PYTHONPATH": str(ROOT)},
        stdout=subprocess.PIPE, stderr=subprocess.PIPE,
    )  # fmt: skip
    assert command.stdout is not None
    assert command.stderr is not None
    command.stdout.close()
    assert command.stderr.read() == b""
    assert command.wait(30.0) == 0


def test_interrupted_in_the_middle_of_an_import_it_has_its_code(tmp_path: Path) -> None:
    """Dataclasses are made by `exec`; there `python -m` takes Ctrl-C for uncaught, whoever catches it further out."""
    (tmp_path / "interrupted.py").write_text(
        "from testbed import cli\n"
        "def invoked(arguments):\n"
        "    exec('raise KeyboardInterrupt')\n"
        "cli._invoked = invoked\n"
        "cli.main(['runs', 'list'])\n"
    )
    environment = {**os.environ, "PYTHONPATH": f"{ROOT}:{tmp_path}"}
    words = [sys.executable, "-m", "interrupted"]
    ended = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=60.0, check=False)
    assert (ended.returncode, ended.stderr) == (130, "gradstorm: interrupted; no process is left\n")


def test_usage_and_help_have_their_codes(capsys: pytest.CaptureFixture[str]) -> None:
    assert [run_command(words) for words in (["--help"], ["--version"], ["run"], ["nothing"], [])] == [0, 0, 2, 2, 2]
    assert "Traceback" not in capsys.readouterr().err
