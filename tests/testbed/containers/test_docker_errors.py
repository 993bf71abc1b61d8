"""Which daemon is meant, and every way in which it can fail us, each within its bound. No daemon is needed."""

from __future__ import annotations

import json
import socket
import threading
import time
from pathlib import Path

import pytest

from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import (
    DockerError,
    DockerHung,
    DockerRefused,
    DockerUnavailable,
    ImageMissing,
    NameTaken,
    NotRunning,
    NotThere,
)
from testbed.containers.docker_events import EventWatcher
from testbed.containers.docker_target import find_target
from testbed.engines.base import EngineError
from tests.testbed.containers.api_double import Answer, answering


@pytest.fixture
def no_config(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A user without contexts. The SDK reads these from the process's own environment."""
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("DOCKER_CONFIG", str(tmp_path / ".docker"))
    for name in ("DOCKER_HOST", "DOCKER_CONTEXT", "DOCKER_TLS_VERIFY", "DOCKER_CERT_PATH"):
        monkeypatch.delenv(name, raising=False)
    return tmp_path


def test_without_anything_it_is_the_default_socket(no_config: Path) -> None:
    target = find_target({})
    assert target.host.endswith("/var/run/docker.sock")
    assert target.chosen_by == "context default"


def test_docker_host_wins(no_config: Path) -> None:
    target = find_target({"DOCKER_HOST": "unix:///elsewhere.sock", "DOCKER_CONTEXT": "other"})
    assert target.host.endswith("/elsewhere.sock")
    assert str(target).endswith("(DOCKER_HOST)")


def test_a_context_that_does_not_exist_is_no_reason_to_take_another_daemon(no_config: Path) -> None:
    with pytest.raises(DockerUnavailable, match="DOCKER_CONTEXT=lost: there is no such context"):
        find_target({"DOCKER_CONTEXT": "lost"})


def test_no_daemon(tmp_path: Path) -> None:
    with pytest.raises(DockerUnavailable, match=r"no Docker daemon answers at .*none.sock .*No such file"):
        Docker.connect({"DOCKER_HOST": f"unix://{tmp_path}/none.sock"})


@pytest.mark.alone
def test_a_hung_daemon_is_said_to_be_hung_within_the_bound() -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        began_s = time.monotonic()
        with pytest.raises(DockerHung, match="did not answer in time"):
            Docker.connect({"DOCKER_HOST": f"tcp://127.0.0.1:{silent.getsockname()[1]}"}, timeout_s=0.3)
        assert time.monotonic() - began_s < 3.0


def died(role: str, at_ns: int) -> bytes:
    """An event, as the daemon writes it."""
    actor = {"ID": role, "Attributes": {"exitCode": "0", "gradstorm.role": role, "gradstorm.launch": "1"}}
    return json.dumps({"Action": "die", "Actor": actor, "timeNano": at_ns}).encode()


def test_two_that_die_together_are_both_told_whichever_the_daemon_tells_first() -> None:
    """Its stream ends after that, so each is told once more whenever it is opened again."""
    began_ns = 1_800_000_000_000_000_000
    stream = [died("coordinator", began_ns + 98_000), died("worker-4", began_ns + 1_000)]
    opened = threading.Semaphore(0)

    def answer(method: str, path: str) -> tuple[int, bytes | list[bytes]]:
        if "/events" in path:
            opened.release()
            return 200, stream
        return 200, json.dumps({"Version": "1", "ApiVersion": "1.41", "SystemTime": "2027-01-15T08:00:00Z"}).encode()

    heard: list[str] = []
    with answering(answer) as address:
        docker = Docker.connect({"DOCKER_HOST": f"tcp://{address}"}, timeout_s=5.0)
        watcher = EventWatcher(docker, "run", lambda event: heard.append(event.role), heard.append)
        try:
            for _ in range(3):
                assert opened.acquire(timeout=10.0)
        finally:
            watcher.close()
            docker.close()
    assert heard == ["coordinator", "worker-4"]


def daemon(status: int, message: str) -> Answer:
    """A daemon that knows its version and refuses all else."""

    def answer(method: str, path: str) -> tuple[int, bytes]:
        if path.endswith("/version"):
            return 200, json.dumps({"Version": "1", "ApiVersion": "1.41"}).encode()
        return status, json.dumps({"message": message}).encode()

    return answer


@pytest.mark.parametrize(
    ("status", "message", "error"),
    [
        (404, "No such container: x", NotThere),
        (404, "No such image: x", ImageMissing),
        (409, "Container 1a2b is not running", NotRunning),
        (409, 'Conflict. The container name "/x" is already in use by container "1a2b"', NameTaken),
        (500, "driver failed programming external connectivity: port is already allocated", DockerRefused),
    ],
)
def test_refusals_have_their_own_errors(status: int, message: str, error: type[DockerError]) -> None:
    with answering(daemon(status, message)) as address:
        docker = Docker.connect({"DOCKER_HOST": f"tcp://{address}"})
        with pytest.raises(error, match="pausing x: ") as raised:
            docker.pause("x")
        docker.close()
    assert isinstance(raised.value, EngineError)
    assert docker.target_line == f"Docker engine 1 at tcp://{address} (DOCKER_HOST)" or address in docker.target_line


def test_a_daemon_that_stops_in_the_middle_is_said() -> None:
    with answering(daemon(500, "")) as address:
        docker = Docker.connect({"DOCKER_HOST": f"tcp://{address}"})
    with pytest.raises(DockerUnavailable, match="looking at x: no Docker daemon answers"):
        docker.inspect("x")


def test_an_image_that_cannot_be_pulled_says_what_can_be_done() -> None:
    with answering(daemon(404, "No such image: x")) as address:
        docker = Docker.connect({"DOCKER_HOST": f"tcp://{address}"})
        with pytest.raises(ImageMissing, match=r"cannot be pulled .*scripts/docker-images makes it"):
            docker.ensure_image("x:1")
