"""The image: a role is healthy, is not root, computes the bits of its host and ends in order; compose brings it up."""

from __future__ import annotations

import os
import shutil
import subprocess
import time
from pathlib import Path

import pytest

from testbed.containers.container import Attachment
from testbed.containers.docker_errors import ImageMissing
from testbed.containers.labels import EXPIRES, OWNER, RUN
from testbed.containers.toxiproxy import Toxiproxy
from tests.needs import missing
from tests.testbed.containers.conftest import Yard
from tests.testbed.containers.test_docker_faults import wait_until
from training.numerics import fingerprint

pytestmark = [pytest.mark.containers, pytest.mark.slow]

IMAGE = os.environ.get("GRADSTORM_IMAGE", "gradstorm:local")
COMPOSE_FILE = Path(__file__).resolve().parents[3] / "compose" / "smoke.yml"
UP_S = 90
NUMBERS = ("OPENBLAS_", "OMP_", "MKL_", "NPY_")  # what bits depend on goes through as the host has it


@pytest.fixture
def image(yard: Yard) -> str:
    try:
        yard.docker.image_id(IMAGE)
    except ImageMissing:
        missing(f"no image {IMAGE}: scripts/docker-images gradstorm builds it")
    return IMAGE


def test_a_role_is_healthy_is_not_root_and_ends_in_order(yard: Yard, image: str) -> None:
    name = yard.start(
        "worker-1",
        *("worker-1", "--run-id", yard.whose.run_id, "--folder", "/run-folder", "--listen", "worker-1:50051"),
        image=image,
        entrypoint=None,
        environment={"GRADSTORM_TOKEN": "test", "GRADSTORM_HEALTH_TARGET": "worker-1:50051"},
        attachments=(Attachment(yard.network, ("worker-1",)),),
    ).name
    wait_until(lambda: yard.docker.inspect(name).health == "healthy", "worker-1 is healthy", 60.0)
    stopped = yard.docker.stop(name, grace_s=20)
    assert stopped.exit_code == 0
    assert '"condition": "shutdown"' in yard.docker.log_tail(name)


def test_it_computes_the_bits_of_its_host(yard: Yard, image: str) -> None:
    look = "import os\nfrom training.numerics import fingerprint\nprint(os.getuid() != 0, fingerprint())"
    same = {name: value for name, value in os.environ.items() if name.startswith(NUMBERS)}
    name = yard.start("look", "python3", "-c", look, image=image, environment=same).name
    yard.docker.wait_exit(name, 60.0)
    assert yard.docker.log_tail(name) == f"True {fingerprint()}"


def compose(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        ["docker", "compose", "--file", str(COMPOSE_FILE), *arguments],
        env={**os.environ, **environment},
        capture_output=True,
        text=True,
        timeout=UP_S + 30,
        check=False,
    )


def test_compose_brings_it_up_under_our_labels(yard: Yard, image: str) -> None:
    if shutil.which("docker") is None or compose({}, "version").returncode != 0:
        missing("no `docker compose`: scripts/docker-compose-plugin gives you one")
    labels = yard.whose.labels()
    environment = {
        "GRADSTORM_IMAGE": image,
        "GRADSTORM_OWNER": labels[OWNER],
        "GRADSTORM_RUN": labels[RUN],
        "GRADSTORM_EXPIRES": labels[EXPIRES],
        "GRADSTORM_DRIVER": yard.whose.driver,
        "GRADSTORM_TOKEN": "test",
    }
    up = compose(environment, "up", "--detach", "--wait", "--wait-timeout", str(UP_S))
    assert up.returncode == 0, up.stderr
    states = {state.role or "toxiproxy": state for state in yard.docker.containers(run_id=yard.whose.run_id)}
    assert sorted(states) == ["toxiproxy", "worker-1", "worker-2"]
    assert {state.whose for state in states.values()} == {yard.whose}
    assert states["worker-1"].health == "healthy"
    client = Toxiproxy(states["toxiproxy"].published[8474])
    assert client.wait_ready(20.0, time.sleep) == "2.12.0"
    project = f"gradstorm-{yard.whose.run_id}"
    assert list(yard.docker.networks(run_id=yard.whose.run_id)) == [
        project,  # the test's own
        f"{project}_control",
        f"{project}_links",
    ]
