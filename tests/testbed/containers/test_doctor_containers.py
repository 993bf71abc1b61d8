"""What `doctor` says of containers: each thing that is not as it should be, and how to get it so."""

from __future__ import annotations

import os
import socket
import subprocess
from pathlib import Path

import pytest

from testbed.containers.image_source import source_hash, why_stale
from testbed.containers.labels import Ownership, this_owner
from testbed.doctor_containers import examine_containers, ready_for
from testbed.doctor_finding import Finding
from tests.testbed.containers.conftest import Yard

ROOT = Path(__file__).resolve().parents[3]


def by_name(environment: dict[str, str]) -> dict[str, Finding]:
    return {finding.name: finding for finding in examine_containers(environment)}


def test_no_docker_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/nowhere")
    found = by_name({"PATH": "/nowhere"})
    assert found["docker"].level == "absent"
    assert "install Docker" in found["docker"].advice
    assert ready_for(list(found.values())) == ["sim", "local"]


@pytest.mark.containers
def test_no_daemon() -> None:
    found = by_name({**os.environ, "DOCKER_HOST": "unix:///nowhere.sock"})
    assert found["docker"].level == "absent"
    assert "no Docker daemon answers at unix:///nowhere.sock (DOCKER_HOST)" in found["docker"].value
    assert "docker-daemon start" in found["docker"].advice
    assert ready_for(list(found.values())) == ["sim", "local"]


def test_a_toxiproxy_that_cannot_be_run(tmp_path: Path) -> None:
    found = by_name({"PATH": "/nowhere", "DOCKER_HOST": "unix:///nowhere", "GRADSTORM_TOXIPROXY": str(tmp_path)})
    assert found["toxiproxy"].level == "failure"


@pytest.mark.containers
def test_a_daemon_and_what_it_has_not(yard: Yard) -> None:
    names = {"GRADSTORM_IMAGE": "gradstorm:no-such-image", "GRADSTORM_TOXIPROXY_IMAGE": "nobody/toxiproxy:0"}
    found = by_name({**os.environ, **names})
    assert found["docker"].level == "ok"
    assert yard.docker.engine_version in found["docker"].value
    assert (found["image"].level, found["toxiproxy image"].level) == ("absent", "absent")
    assert "make image" in found["image"].advice
    assert {"docker memory", "docker disk", "left over", "compose"} <= set(found)
    assert ready_for(list(found.values())) == ["sim", "local"]


@pytest.mark.containers
def test_an_image_of_another_source(yard: Yard) -> None:
    found = by_name({**os.environ, "GRADSTORM_IMAGE": yard.image})
    assert found["image"].level == "warning"
    assert "was not built from this source" in found["image"].value
    assert "`make image` builds it anew" in why_stale(yard.docker, yard.image, yard.image)


@pytest.mark.containers
def test_the_hash_is_the_one_that_the_script_writes(yard: Yard) -> None:
    environment = {**os.environ, "GRADSTORM_PYTHON_IMAGE": yard.image}
    script = [str(ROOT / "scripts" / "docker-images"), "source-hash"]
    said = subprocess.run(script, env=environment, capture_output=True, text=True, timeout=60, check=True).stdout
    assert said.strip() == source_hash(yard.docker.image_id(yard.image))


@pytest.mark.containers
def test_what_is_left_over_is_counted(yard: Yard) -> None:
    left = Ownership(this_owner(), yard.whose.run_id, 0, f"{socket.gethostname()}/1/0")
    yard.docker.create_network(f"{yard.network}-left", left, internal=True)
    found = by_name(dict(os.environ))["left over"]
    assert found.level == "warning"
    assert "gradstorm clean" in found.advice
