"""Finding, starting and ending a Toxiproxy: on loopback only, on a port that is its own, and never left over."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

import psutil
import pytest

from testbed.containers import toxiproxy_process
from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_errors import ToxiproxyHung, ToxiproxyUnreachable
from testbed.containers.toxiproxy_process import ToxiproxyProcess, find_toxiproxy
from tests.needs import missing
from tests.testbed.waiting import wait_until
from training.errors import ConfigurationError


@pytest.fixture
def binary() -> Path:
    found = find_toxiproxy(os.environ)
    if found is None:
        missing("no toxiproxy-server on PATH and GRADSTORM_TOXIPROXY not set")
    return found


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n", encoding="utf-8")
    path.chmod(0o755)
    return path


def test_found_by_variable_then_on_the_path(tmp_path: Path) -> None:
    on_path = script(tmp_path / "toxiproxy-server", "true")
    named = script(tmp_path / "another", "true")
    assert find_toxiproxy({"PATH": str(tmp_path)}) == on_path
    assert find_toxiproxy({"PATH": str(tmp_path), "GRADSTORM_TOXIPROXY": str(named)}) == named
    assert find_toxiproxy({"PATH": ""}) is None


@pytest.mark.parametrize("name", ["missing", "folder", "text"])
def test_a_variable_that_names_no_program_is_said(tmp_path: Path, name: str) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "text").write_text("hello", encoding="utf-8")
    with pytest.raises(ConfigurationError, match=r"GRADSTORM_TOXIPROXY=.* is no program"):
        find_toxiproxy({"GRADSTORM_TOXIPROXY": str(tmp_path / name)})


def test_a_program_that_ends_at_once_is_said_with_its_last_words(tmp_path: Path) -> None:
    broken = script(tmp_path / "broken", "echo out of luck; exit 3")
    with pytest.raises(ToxiproxyUnreachable, match=r"(?s)10 tries.*out of luck"):
        ToxiproxyProcess.start(broken, tmp_path / "log")


def test_a_program_that_cannot_be_started_is_said(tmp_path: Path) -> None:
    with pytest.raises(ToxiproxyUnreachable, match=r"cannot start .*No such file"):
        ToxiproxyProcess.start(tmp_path / "missing", tmp_path / "log")


def test_it_listens_on_loopback_only_and_is_gone_after_stop(binary: Path, tmp_path: Path) -> None:
    with ToxiproxyProcess.start(binary, tmp_path / "log") as server:
        assert server.version == "2.12.0"
        assert server.why_gone() == ""
        Toxiproxy(server.address).create("link", "127.0.0.1:9")
        hosts = {there.laddr.ip for there in psutil.Process(server.pid).net_connections("tcp")}
        assert hosts == {"127.0.0.1"}
    assert "exit code 0" in server.why_gone()
    with pytest.raises(ToxiproxyUnreachable):
        Toxiproxy(server.address).version()


def test_a_port_that_somebody_took_is_not_taken_for_ours(
    binary: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Toxiproxy goes on without its API then; whoever answers on the port is somebody else."""
    free_port = toxiproxy_process._free_port
    with socket.create_server(("127.0.0.1", 0)) as hog:
        ports = [int(hog.getsockname()[1]), free_port()]
        monkeypatch.setattr(toxiproxy_process, "_free_port", lambda: ports.pop(0))
        with ToxiproxyProcess.start(binary, tmp_path / "log") as server:
            assert ports == []
            assert not server.address.endswith(f":{hog.getsockname()[1]}")


def test_two_side_by_side_do_not_meet(binary: Path, tmp_path: Path) -> None:
    with (
        ToxiproxyProcess.start(binary, tmp_path / "one") as one,
        ToxiproxyProcess.start(binary, tmp_path / "two") as two,
    ):
        Toxiproxy(one.address).create("link", "127.0.0.1:9")
        assert Toxiproxy(two.address).proxies() == {}


def test_its_death_is_seen(binary: Path, tmp_path: Path) -> None:
    with ToxiproxyProcess.start(binary, tmp_path / "log") as server:
        os.kill(server.pid, signal.SIGKILL)
        server.wait_gone(5.0)
        assert "exit code -9" in server.why_gone()


def test_it_dies_with_a_driver_that_is_killed(binary: Path, tmp_path: Path) -> None:
    code = (
        "import sys, pathlib\n"
        "from testbed.containers.toxiproxy_process import ToxiproxyProcess\n"
        f"server = ToxiproxyProcess.start(pathlib.Path({str(binary)!r}), pathlib.Path({str(tmp_path / 'log')!r}))\n"
        "print(server.pid, flush=True)\n"
        "sys.stdin.read()\n"
    )
    driver = subprocess.Popen([sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert driver.stdin is not None
    assert driver.stdout is not None
    server = psutil.Process(int(driver.stdout.readline()))
    driver.kill()
    driver.wait()
    driver.stdin.close()
    driver.stdout.close()
    server.wait(5)
    assert not server.is_running()


def stop(pid: int) -> None:
    """And wait until it stands: on a busy machine it goes on for a moment."""
    os.kill(pid, signal.SIGSTOP)
    assert wait_until(lambda: psutil.Process(pid).status() == psutil.STATUS_STOPPED, 10.0)


def test_a_hung_one_is_said_to_be_hung_and_goes_on_afterwards(binary: Path, tmp_path: Path) -> None:
    with ToxiproxyProcess.start(binary, tmp_path / "log") as server:
        client = Toxiproxy(server.address, timeout_s=0.3)
        stop(server.pid)
        with pytest.raises(ToxiproxyHung, match=r"did not answer within 0.3 s"):
            client.proxies()
        os.kill(server.pid, signal.SIGCONT)
        assert client.proxies() == {}


def test_a_hung_one_is_ended_all_the_same(binary: Path, tmp_path: Path) -> None:
    with ToxiproxyProcess.start(binary, tmp_path / "log") as server:
        stop(server.pid)
    assert "exit code -9" in server.why_gone()
