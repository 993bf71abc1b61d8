"""A real Toxiproxy with a real server behind a proxy, and a real Docker daemon with a run of our own on it.

What needs a Toxiproxy is skipped where no binary is found; tests marked `containers` where no daemon answers.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from testbed.containers.container import Attachment, ContainerSpec, ContainerState
from testbed.containers.docker_adapter import Docker
from testbed.containers.labels import Ownership, this_driver
from testbed.containers.sweep import of_run, sweep
from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_process import BINARY_NAME, BINARY_VARIABLE, ToxiproxyProcess, find_toxiproxy
from testbed.containers.toxiproxy_state import ProxyState
from tests.needs import missing
from tests.testbed.containers.tcp import stamping_server


@pytest.fixture(scope="session")
def toxiproxy_process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ToxiproxyProcess]:
    """One server for all tests: each makes a proxy of its own."""
    binary = find_toxiproxy(os.environ)
    if binary is None:
        missing(f"no {BINARY_NAME} on PATH and {BINARY_VARIABLE} not set")
    with ToxiproxyProcess.start(binary, tmp_path_factory.mktemp("toxiproxy") / "log") as process:
        yield process


@pytest.fixture
def toxiproxy(toxiproxy_process: ToxiproxyProcess) -> Iterator[Toxiproxy]:
    client = Toxiproxy(toxiproxy_process.address)
    yield client
    for name in client.proxies():
        client.delete(name)


@pytest.fixture
def link(toxiproxy: Toxiproxy) -> Iterator[ProxyState]:
    """A proxy named "link" in front of a server that stamps."""
    with stamping_server() as address:
        yield toxiproxy.create("link", address)


@dataclass(frozen=True, slots=True)
class Yard:
    """A daemon and a run of our own on it: everything that a test starts carries these labels."""

    docker: Docker
    whose: Ownership
    image: str

    @property
    def network(self) -> str:
        return f"gradstorm-{self.whose.run_id}"

    def spec(self, role: str, *command: str, **changes: Any) -> ContainerSpec:
        """A container of the run that runs this command."""
        spec = ContainerSpec(
            name=f"gradstorm-{self.whose.run_id}-{role}",
            image=self.image,
            command=command,
            entrypoint=(),
            whose=self.whose,
            role=role,
            launch=1,
            attachments=(Attachment(self.network, (role,)),),
        )
        return dataclasses.replace(spec, **changes)

    def start(self, role: str, *command: str, **changes: Any) -> ContainerState:
        return self.docker.start(self.spec(role, *command, **changes))


@pytest.fixture
def docker() -> Iterator[Docker]:
    connected = Docker.connect(os.environ, timeout_s=30.0)
    yield connected
    connected.close()


@pytest.fixture
def yard(docker: Docker) -> Iterator[Yard]:
    """With one internal network. Nothing of it is left afterwards, and that is checked."""
    run_id = secrets.token_hex(4)
    whose = Ownership(f"test-{run_id}", run_id, int(time.time()) + 600, this_driver())
    image = os.environ.get("GRADSTORM_PYTHON_IMAGE", "python:3.11-slim")
    docker.ensure_image(image)
    mine = Yard(docker, whose, image)
    docker.create_network(mine.network, whose, internal=True)
    yield mine
    sweep(docker, of_run(run_id))
    assert docker.containers(run_id=run_id) == []
    assert docker.networks(run_id=run_id) == {}
