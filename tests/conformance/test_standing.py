"""A testbed that stands: up, broken and healed by hand, another beside it, down; and nothing of it is left.

Driven as a person drives it, by the command line. What is left is asked of the daemon by label.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from tests.needs import missing
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from testbed.containers.docker_adapter import Docker

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(300)]
ROOT = Path(__file__).resolve().parents[2]
BOUND_S = 150.0
KNOCK = """
import os, socket, sys
def knock(host, port):
    try:
        socket.create_connection((host, port), timeout=3).close()
    except OSError:
        return False
    return True
gateway = sys.argv[1]
print([place for place in [("toxiproxy-control", 8474), ("toxiproxy", 8474), (gateway, 8474), (gateway, 2375),
                           ("worker-2", 50051)] if knock(*place)], os.path.exists("/var/run/docker.sock"))
"""


@pytest.fixture
def docker() -> Iterator[Docker]:
    from testbed.containers.docker_adapter import Docker

    connected = Docker.connect(os.environ, timeout_s=60.0)
    yield connected
    connected.close()


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Where the testbeds are; whatever a failed test leaves up is taken down."""
    from testbed.hand.control import all_standing

    if subprocess.run(["docker", "compose", "version"], capture_output=True, check=False).returncode != 0:
        missing("no `docker compose`: scripts/docker-compose-plugin gives you one")
    monkeypatch.setenv("GRADSTORM_HOME", str(tmp_path / "runs"))
    yield tmp_path / "runs"
    for left in all_standing():
        gradstorm("down", "--name", left.run_id)


def gradstorm(*words: str) -> subprocess.CompletedProcess[str]:
    """One command; its output."""
    return subprocess.run(
        [sys.executable, "-m", "testbed.cli", *words],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=BOUND_S,
        check=False,
    )


def done(*words: str) -> str:
    """What a command says that must succeed."""
    ended = gradstorm(*words)
    assert ended.returncode == 0, ended.stderr + ended.stdout
    return ended.stdout


def up(*words: str) -> str:
    """The run id of a testbed that is brought up."""
    found = re.search(r"up after [0-9.]+ s: (\S+),", done("up", "--workers", "2", *words))
    assert found is not None
    return found[1]


def status(name: str) -> Any:
    return json.loads(done("status", "--name", name, "--json"))


def left_of(docker: Docker, run_id: str) -> list[str]:
    return [one.name for one in docker.containers(run_id=run_id)] + list(docker.networks(run_id=run_id))


def test_a_worker_is_added(home: Path) -> None:
    name = up("--pace-ms", "50", "--strategy", "ps")
    refused = gradstorm("inject", "worker-9", "add")
    assert (refused.returncode, refused.stdout) == (2, "")
    assert "what can be added here: worker-3, worker-4, worker-5, worker-6" in refused.stderr
    assert "fault 1-add-worker-3 acted" in done("inject", "worker-3", "add")
    assert wait_until(lambda: status(name)["members"] == 3, BOUND_S)
    assert wait_until(lambda: status(name)["faults"]["1-add-worker-3"] == "undone", BOUND_S)
    assert "affected" in done("inject", "w3→server", "latency", "100ms")
    assert done("heal") == "healed: 2-latency\n"
    said = done("down")
    assert "nothing violated" in said


@pytest.mark.alone
@pytest.mark.matrix  # it takes a minute, and a machine that is not too busy for 50 ms a step
def test_up_broken_healed_and_down(home: Path, docker: Docker) -> None:
    name = up("--pace-ms", "50")
    assert f"gradstorm-{name}" in shell("docker", "compose", "ls")
    told = done("inject", "w1→w2", "latency", "100ms")
    measured = re.search(r"delay_ms ([0-9.]+)", told)
    assert measured is not None, told
    assert float(measured[1]) >= 99.0  # how exact it is, test_toxiproxy_faults.py measures; a busy machine adds
    shown = status(name)
    assert shown["active"] == ["1-latency"]
    delays_ms = shown["delays_ms"]
    assert delays_ms["worker-1→worker-2"] > max(99.0, delays_ms["worker-2→worker-1"])
    assert "exit_code 137" in done("inject", "worker-2", "kill")
    assert done("heal") == "healed: 1-latency, worker-2 started again\n"
    assert wait_until(lambda: status(name)["members"] == 2, BOUND_S)
    step = status(name)["step"]
    assert wait_until(lambda: status(name)["step"] > step, BOUND_S)
    assert status(name)["roles"]["worker-2"]["launch"] == 2
    assert "== worker-2.2.log" in done("logs", "worker-2")
    kept = done("clean").splitlines()[-1]
    assert kept.startswith("still in use, left alone")
    assert name in kept
    said = done("down")
    counted = re.search(r"(\d+) steps committed, (\d+) checked, nothing violated", said)
    assert counted is not None, said
    assert int(counted[1]) - int(counted[2]) in (0, 1)  # it was taken down in the middle of a step, or between two
    assert int(counted[2]) > step
    assert left_of(docker, name) == []


def test_a_worker_reaches_its_peers_through_proxies_and_no_control_interface(home: Path, docker: Docker) -> None:
    name = up()
    gateway = docker.gateway(f"gradstorm-{name}-links")
    said = shell("docker", "exec", f"gradstorm-{name}-worker-1.1", "python3", "-c", KNOCK, gateway)
    assert said == "[('worker-2', 50051)] False\n"


def test_two_side_by_side_do_not_meet(home: Path, docker: Docker) -> None:
    one, other = up(), up("--strategy", "ps")
    assert gradstorm("status").returncode == 2  # which?
    done("inject", "--name", one, "worker-1", "kill")
    assert status(other)["members"] == 2
    assert status(other)["roles"]["worker-1"]["state"] == "up"
    before = left_of(docker, other)
    done("down", "--name", one)
    assert left_of(docker, one) == []
    assert left_of(docker, other) == before
    step = status(other)["step"]
    assert wait_until(lambda: status(other)["step"] > step, BOUND_S)


def test_it_rests_while_a_scenario_runs_and_goes_on_afterwards(home: Path, docker: Docker) -> None:
    name = up("--pace-ms", "20")
    ended = gradstorm("run", "clean", "--engine", "containers")
    assert ended.returncode == 0, ended.stderr
    assert f"testbed {name} rests meanwhile" in ended.stderr
    step = status(name)["step"]
    assert wait_until(lambda: status(name)["step"] > step, BOUND_S)


def test_what_a_killed_driver_left_goes_with_clean(home: Path, docker: Docker) -> None:
    from testbed.hand.control import find_standing

    name = up()
    done("inject", "c↔w1", "partition")
    driver = psutil.Process(find_standing(name).pid)
    driver.send_signal(signal.SIGKILL)
    driver.wait(BOUND_S)
    assert left_of(docker, name)
    assert gradstorm("status").returncode == 2  # none is up
    said = done("clean")
    assert f"removed container gradstorm-{name}-worker-1.1" in said
    assert f"removed network gradstorm-{name}-links" in said
    assert left_of(docker, name) == []


def test_what_cannot_be_is_said_and_starts_nothing(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for words, code, told in (
        (("up", "--engine", "sim"), 2, "stands on --engine containers only"),
        (("up", "--memory", "much"), 2, "GRADSTORM_ROLE_MEMORY=much"),
        (("up", "--strategy", "tree"), 2, "--strategy 'tree' is none of ring, ps, shards"),
        (("up", "--workers", "0"), 2, "workers"),
        (("status",), 2, "no testbed is up"),
        (("down",), 2, "no testbed is up"),
    ):
        ended = gradstorm(*words)
        assert (ended.returncode, ended.stdout) == (code, ""), (words, ended.stderr)
        assert told in ended.stderr.splitlines()[-1], (words, ended.stderr)
    monkeypatch.setenv("GRADSTORM_IMAGE", "gradstorm:no-such-image")
    ended = gradstorm("up")
    assert ended.returncode == 3
    assert "image gradstorm:no-such-image is not here; `make image` builds it" in ended.stderr.splitlines()[-1]


def shell(*words: str) -> str:
    assert shutil.which(words[0])
    return subprocess.run(words, capture_output=True, text=True, timeout=60, check=True).stdout


MISSED = """\
name: never-there
title: A fault whose point is never reached
engines: [containers]
training: {steps: 8}
faults:
  - {kind: kill, target: worker-4, trigger: {step: 4, phase: offer}}
  - {kind: kill, target: worker-4, trigger: {at_ms: 600000}}
fixed: false
"""


def test_a_failed_run_that_is_kept_stands_until_it_is_told(home: Path, tmp_path: Path, docker: Docker) -> None:
    scenario = tmp_path / "never-there.yaml"
    scenario.write_text(MISSED, encoding="utf-8")
    told, out = tmp_path / "stderr", tmp_path / "run"
    command = ["run", str(scenario), "--engine", "containers", "--keep", "--out", str(out)]
    with (
        told.open("w") as stderr,
        subprocess.Popen(
            [sys.executable, "-m", "testbed.cli", *command],
            stdout=subprocess.PIPE,
            stderr=stderr,
            env={**os.environ, "PYTHONPATH": str(ROOT)},
            text=True,
        ) as driver,
    ):
        try:
            assert wait_until(lambda: "Ctrl-C takes it down" in told.read_text(), BOUND_S), told.read_text()
            run_id = json.loads((out / "manifest.json").read_text())["run_id"]
            assert left_of(docker, run_id)
            driver.send_signal(signal.SIGINT)
            said, _ = driver.communicate(timeout=BOUND_S)
        finally:
            driver.kill()
    assert driver.returncode == 4, said
    assert "UNKNOWN" in said
    assert left_of(docker, run_id) == []


def test_only_containers_are_kept() -> None:
    ended = gradstorm("run", "clean", "--keep")
    assert (ended.returncode, ended.stdout) == (2, "")
    assert "--keep is for --engine containers" in ended.stderr
