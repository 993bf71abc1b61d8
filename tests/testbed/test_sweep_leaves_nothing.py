"""The processes of a sweep go with the command, however it ends."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.local
ROOT = Path(__file__).resolve().parents[2]


def alive(processes: list[psutil.Process]) -> list[psutil.Process]:
    return [one for one in processes if one.is_running() and one.status() != psutil.STATUS_ZOMBIE]


def importing(process: psutil.Process) -> bool:
    """Python runs there, and has begun to load what a simulated run needs; all of it takes longer."""
    return process.cpu_times().user > 0.15


@contextmanager
def sweeping(folder: Path, runs: int) -> Iterator[subprocess.Popen[bytes]]:
    """A sweep in a session of its own; what it says on stderr is in the file `err`."""
    command = [sys.executable, "-m", "testbed.cli", "sweep", "--runs", str(runs), "--jobs", "2"]
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "GRADSTORM_HOME": str(folder)}
    with (
        (folder / "err").open("w") as err,
        subprocess.Popen(
            command, env=environment, stdout=subprocess.DEVNULL, stderr=err, start_new_session=True
        ) as driver,
    ):
        try:
            yield driver
        finally:
            driver.kill()


@pytest.mark.parametrize(("how", "code"), [(signal.SIGKILL, -9), (signal.SIGINT, 130), (signal.SIGTERM, 130)])
def test_nothing_is_left(how: signal.Signals, code: int, tmp_path: Path) -> None:
    with sweeping(tmp_path, 2000) as driver:
        here = psutil.Process(driver.pid)
        assert wait_until(lambda: " of 2000 runs" in (tmp_path / "err").read_text(), 90.0)
        pool = here.children(recursive=True)
        assert len(pool) >= 2
        driver.send_signal(how)
        assert driver.wait(30.0) == code
        assert wait_until(lambda: not alive(pool), 5.0), alive(pool)
    assert "Traceback" not in (tmp_path / "err").read_text()


def test_ctrl_c_while_the_processes_start_is_quiet(tmp_path: Path) -> None:
    """A terminal sends it to the whole group, and processes that start have not yet said what they do with it."""
    with sweeping(tmp_path, 50) as driver:
        here = psutil.Process(driver.pid)
        assert wait_until(lambda: sum(importing(one) for one in here.children()) >= 2, 90.0)
        pool = here.children()
        os.killpg(driver.pid, signal.SIGINT)
        assert driver.wait(30.0) == 130
        assert wait_until(lambda: not alive(pool), 5.0), alive(pool)
    assert (tmp_path / "err").read_text() == "gradstorm: interrupted; no process is left\n"
