"""What a run in containers needs goes away, or was never there: one clear line, and nothing is left running."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

import testbed
from chaos.scenario import parse_scenario
from services.records import Committed, Fact
from testbed.cli import run_command
from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_target import find_target
from testbed.containers.sweep import of_run, sweep
from testbed.engines.base import EngineError, Silent
from testbed.run_folder import RunFolder
from tests.conformance.container_runs import run_id_said
from tests.needs import missing
from tests.testbed.containers.socket_proxy import SocketProxy

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(240)]
LATE_LATENCY = """\
name: late-latency
title: A latency after the proxies have stopped to answer
fixed: false
training: {steps: 400}
faults:
  - kind: latency
    pairs: [[worker-2, coordinator]]
    trigger: {at_ms: 2000}
    delay_ms: 50
    for_ms: 1000
"""


class At(Silent):
    """Does something once, when the third step is committed."""

    def __init__(self, what: Callable[[], object]) -> None:
        self._what = what
        self.notes: list[str] = []
        self.done = False

    def fact(self, role: str, fact: Fact) -> None:
        if isinstance(fact, Committed) and fact.step == 3 and not self.done:
            self.done = True
            self._what()

    def note(self, text: str) -> None:
        self.notes.append(text)


def run_id_of(path: Path) -> str:
    return str(RunFolder(path).manifest()["run_id"])


def nothing_is_left(docker: Docker, run_id: str) -> bool:
    return docker.containers(run_id=run_id) == [] and docker.networks(run_id=run_id) == {}


def toxiproxy_of(path: Path) -> str:
    return f"gradstorm-{run_id_of(path)}-toxiproxy"


def test_toxiproxy_dies(tmp_path: Path, docker: Docker) -> None:
    at = At(lambda: docker.kill(toxiproxy_of(tmp_path / "run")))
    with pytest.raises(EngineError, match="Toxiproxy ended with exit code 137"):
        testbed.run("clean", "containers", strategy="ring", steps=400, out=tmp_path / "run", progress=at)
    assert at.done
    assert nothing_is_left(docker, run_id_of(tmp_path / "run"))


def test_toxiproxy_hangs(tmp_path: Path, docker: Docker) -> None:
    scenario = parse_scenario(LATE_LATENCY, "late-latency.yaml")
    at = At(lambda: docker.pause(toxiproxy_of(tmp_path / "run")))
    with pytest.raises(EngineError, match=r"Toxiproxy at .* did not answer"):
        testbed.run(scenario, "containers", strategy="ring", out=tmp_path / "run", progress=at)
    assert at.done
    assert nothing_is_left(docker, run_id_of(tmp_path / "run"))


@pytest.fixture
def proxy(monkeypatch: pytest.MonkeyPatch) -> Iterator[SocketProxy]:
    """Between this process and the daemon."""
    target = find_target(os.environ).host
    if not target.startswith("unix://"):
        missing(f"the daemon at {target} has no socket here")
    with tempfile.TemporaryDirectory(prefix="gsp-", dir="/tmp") as folder:
        between = SocketProxy(Path(folder) / "docker.sock", target.removeprefix("unix://"))
        monkeypatch.setenv("DOCKER_HOST", f"unix://{folder}/docker.sock")
        yield between
        between.cut()


def test_the_daemon_goes_away(tmp_path: Path, docker: Docker, proxy: SocketProxy) -> None:
    at = At(proxy.cut)
    with pytest.raises(EngineError, match="lost the Docker daemon"):
        testbed.run("clean", "containers", strategy="ring", steps=50_000, out=tmp_path / "run", progress=at)
    assert at.done
    assert any("`gradstorm clean` removes them" in note for note in at.notes)
    sweep(docker, of_run(run_id_of(tmp_path / "run")))  # it was there all the time, but not for the run
    assert nothing_is_left(docker, run_id_of(tmp_path / "run"))


@pytest.mark.parametrize(
    ("variable", "value", "told"),
    [
        ("DOCKER_HOST", "unix:///nowhere.sock", "no Docker daemon answers at unix:///nowhere.sock (DOCKER_HOST)"),
        ("GRADSTORM_IMAGE", "gradstorm:no-such-image", "gradstorm:no-such-image is not here; `make image` builds it"),
        ("GRADSTORM_IMAGE", "", "No module named 'services'"),  # a container that dies at start: what it said
        ("GRADSTORM_TOXIPROXY_IMAGE", "", "executable file not found"),
        ("GRADSTORM_ROLE_CPUS", "many", "GRADSTORM_ROLE_CPUS=many is no number of cores"),
    ],
)
def test_what_was_never_there(
    variable: str,
    value: str,
    told: str,
    tmp_path: Path,
    docker: Docker,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv(variable, value or os.environ.get("GRADSTORM_PYTHON_IMAGE", "python:3.11-slim"))
    code = run_command(["run", "clean", "--engine", "containers", "--out", str(tmp_path / "run")])
    said = capsys.readouterr().err
    assert code == (2 if "CPUS" in variable else 3), said
    assert told in said.splitlines()[-1], said
    assert nothing_is_left(docker, run_id_said(said))
