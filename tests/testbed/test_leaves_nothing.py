"""Whatever happens to the command, no process is left within 5 seconds; not one that stands stopped either."""

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
GONE_WITHIN_S = 5.0
ROOT = Path(__file__).resolve().parents[2]


@contextmanager
def running(folder: Path, scenario: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`gradstorm run SCENARIO --engine local` in a process of its own, and the file that it tells its progress to."""
    told = folder / "stderr"
    command = [sys.executable, "-m", "testbed.cli", "run", scenario, "--engine", "local", "--out", str(folder / "run")]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        told.open("w") as stderr,
        subprocess.Popen(
            command, stdout=subprocess.DEVNULL, stderr=stderr, env=environment, text=True, start_new_session=True
        ) as driver,
    ):
        try:
            yield driver, told
        finally:
            driver.kill()


def roles_of(folder: Path) -> dict[int, psutil.Process]:
    """Every process of that run: the roles and the watchdog are known by their command lines."""
    found = {}
    for process in psutil.process_iter(["cmdline", "ppid", "status"]):
        line = " ".join(process.info["cmdline"] or [])
        if f"--folder={folder / 'run'}" in line and process.info["status"] != psutil.STATUS_ZOMBIE:
            found[process.pid] = process
    return found


def says(told: Path, text: str) -> bool:
    """Whether the command has told this by now."""
    return text in told.read_text()


def test_the_driver_is_killed_while_a_member_stands_stopped(tmp_path: Path) -> None:
    with running(tmp_path, "pause-past-lease") as (driver, told):
        assert wait_until(lambda: says(told, " stopped\n"), 30.0), told.read_text()
        roles = roles_of(tmp_path)
        assert len(roles) >= 6
        assert psutil.STATUS_STOPPED in {process.status() for process in roles.values()}
        driver.kill()
    assert wait_until(lambda: not roles_of(tmp_path), GONE_WITHIN_S), roles_of(tmp_path)


@pytest.mark.parametrize("name", ["SIGINT", "SIGTERM", "SIGHUP"])
def test_an_interrupted_command_ends_in_order(name: str, tmp_path: Path) -> None:
    with running(tmp_path, "pause-past-lease") as (driver, told):
        assert wait_until(lambda: says(told, " stopped\n"), 30.0), told.read_text()
        assert roles_of(tmp_path)
        driver.send_signal(signal.Signals[name])
        code = driver.wait(GONE_WITHIN_S)
        assert not roles_of(tmp_path)
    assert code == 130
    assert told.read_text().splitlines()[-1].startswith("interrupted; no process is left")
    assert (tmp_path / "run" / "manifest.json").exists()


def test_interrupted_before_the_roles_are_up(tmp_path: Path) -> None:
    with running(tmp_path, "clean") as (driver, _):
        assert wait_until(lambda: bool(roles_of(tmp_path)), 30.0)
        driver.send_signal(signal.SIGINT)
        assert driver.wait(GONE_WITHIN_S) == 130
    assert not roles_of(tmp_path)


def test_two_runs_at_once_do_not_touch_each_other(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "b").mkdir()
    with running(tmp_path / "a", "clean") as (first, first_told), running(tmp_path / "b", "clean") as (second, _):
        assert wait_until(lambda: says(first_told, "generation 1"), 60.0)
        second.send_signal(signal.SIGINT)
        assert second.wait(GONE_WITHIN_S) == 130
        assert first.wait(60.0) == 0
