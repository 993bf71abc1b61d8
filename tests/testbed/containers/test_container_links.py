"""Toxiproxy in a container between two others: measured from inside, and its control interface out of their reach."""

from __future__ import annotations

import json
import os
import shutil
import time
from pathlib import Path

import pytest

from testbed.containers.container import Attachment
from testbed.containers.docker_errors import ImageMissing
from testbed.containers.toxics import Latency
from testbed.containers.toxiproxy import Toxiproxy
from tests.testbed.containers.conftest import Yard

pytestmark = pytest.mark.containers

PORT, API_PORT = 7000, 8474
TOXIPROXY_IMAGE = os.environ.get("GRADSTORM_TOXIPROXY_IMAGE", "ghcr.io/shopify/toxiproxy:2.12.0")


@pytest.fixture
def code(tmp_path: Path) -> Path:
    """A folder with what the containers run, as the package that it is here."""
    inside = tmp_path / "tests" / "testbed" / "containers"
    inside.mkdir(parents=True)
    for name in ("tcp.py", "measure.py"):
        shutil.copy(Path(__file__).parent / name, inside / name)
    tmp_path.chmod(0o755)
    return tmp_path


@pytest.fixture
def proxies(yard: Yard) -> Toxiproxy:
    """On the network of the links and on one of its own, where its control interface is."""
    try:
        yard.docker.ensure_image(TOXIPROXY_IMAGE)
    except ImageMissing as error:
        pytest.fail(str(error))
    control = f"{yard.network}-control"
    yard.docker.create_network(control, yard.whose, internal=False)
    state = yard.docker.start(
        yard.spec(
            "toxiproxy",
            "-host",
            "toxiproxy-control",
            image=TOXIPROXY_IMAGE,
            entrypoint=None,
            attachments=(Attachment(control, ("toxiproxy-control",)), Attachment(yard.network, ("toxiproxy",))),
            ports=(API_PORT,),
        )
    )
    client = Toxiproxy(state.published[API_PORT])
    client.wait_ready(20.0, time.sleep)
    return client


def start(yard: Yard, code: Path, role: str, *arguments: str) -> str:
    """Start `measure.py` in a container on the links' network; returns its name."""
    command = ("python3", "-B", "-m", "tests.testbed.containers.measure", *arguments)
    return yard.start(role, *command, environment={"PYTHONPATH": "/code"}, folders=((code, "/code"),)).name


def run(yard: Yard, code: Path, role: str, *arguments: str) -> str:
    """What `measure.py` says inside a new container on the links' network."""
    name = start(yard, code, role, *arguments)
    ended = yard.docker.wait_exit(name, 30.0)
    said = yard.docker.log_tail(name, lines=1)
    assert ended.exit_code == 0, said
    yard.docker.remove(name)
    return said


@pytest.mark.alone
@pytest.mark.slow
def test_latency_between_containers_in_one_direction_only(yard: Yard, proxies: Toxiproxy, code: Path) -> None:
    start(yard, code, "server", "serve", str(PORT))
    proxies.create("client>server", f"server:{PORT}", f"toxiproxy:{PORT}")

    def measured() -> tuple[float, float]:
        figures = json.loads(run(yard, code, "client", "measure", f"toxiproxy:{PORT}"))
        return figures["there_ms"], figures["back_ms"]

    assert max(measured()) < 15.0
    proxies.add("client>server", "slow", "upstream", Latency(100))
    there_ms, back_ms = measured()
    assert 85.0 <= there_ms <= 115.0
    assert back_ms < 15.0
    proxies.heal("client>server")
    assert max(measured()) < 15.0


@pytest.mark.alone  # of rules that Docker writes anew when a network comes or goes
@pytest.mark.slow
def test_the_control_interface_is_out_of_reach_of_the_roles(yard: Yard, proxies: Toxiproxy, code: Path) -> None:
    control_address = yard.docker.inspect(f"{yard.network}-toxiproxy").address_on(f"{yard.network}-control")
    assert "refused" in run(yard, code, "worker-1", "knock", "toxiproxy", str(API_PORT))
    assert run(yard, code, "worker-1", "knock", control_address, str(API_PORT)) != "connected"
    assert run(yard, code, "worker-1", "knock", "toxiproxy-control", str(API_PORT)) != "connected"
    assert proxies.version() == "2.12.0"
