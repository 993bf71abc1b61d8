"""Only what is ours and left over goes: two owners side by side, a killed driver, a living one."""

from __future__ import annotations

import dataclasses
import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator

import pytest

from testbed.containers.docker_adapter import Docker
from testbed.containers.labels import Ownership, this_driver
from testbed.containers.sweep import left_over_of, of_owner, of_run, sweep
from tests.testbed.containers.conftest import Yard

pytestmark = pytest.mark.containers

SLEEP = ("python3", "-c", "import time; time.sleep(600)")
DRIVER = """
import dataclasses, json, os, sys
from testbed.containers.container import Attachment, ContainerSpec
from testbed.containers.docker_adapter import Docker
from testbed.containers.labels import Ownership, this_driver

owner, run_id, image = sys.argv[1:]
docker = Docker.connect(os.environ, timeout_s=30.0)
whose = Ownership(owner, run_id, 4_000_000_000, this_driver())
network = f"gradstorm-{run_id}"
docker.create_network(network, whose, internal=True)
state = docker.start(ContainerSpec(
    f"gradstorm-{run_id}-worker-1", image, ("python3", "-c", "import time; time.sleep(600)"), whose, "worker-1", 1,
    (Attachment(network),), entrypoint=(),
))
docker.pause(state.name)  # killed in the middle of a fault
print(json.dumps([state.name, network]), flush=True)
sys.stdin.read()
"""


@pytest.fixture
def neighbour(yard: Yard) -> Iterator[Yard]:
    """Another owner on the same daemon, whose things are never ours."""
    run_id = f"{yard.whose.run_id}n"
    whose = Ownership(f"neighbour-{run_id}", run_id, int(time.time()) - 60)  # expired, and still not ours to judge
    other = Yard(yard.docker, whose, yard.image)
    yard.docker.create_network(other.network, whose, internal=True)
    yield other
    sweep(yard.docker, of_run(run_id))


def names(docker: Docker, whose: Ownership) -> tuple[list[str], list[str]]:
    containers = [state.name for state in docker.containers(whose.owner)]
    return containers, list(docker.networks(whose.owner))


def test_two_owners_side_by_side(yard: Yard, neighbour: Yard) -> None:
    yard.start("worker-1", *SLEEP)
    neighbour.start("worker-1", *SLEEP)
    before = names(yard.docker, neighbour.whose)
    assert len(before[0]) == len(before[1]) == 1
    swept = sweep(yard.docker, of_owner(yard.whose.owner))
    assert len(swept.containers) == len(swept.networks) == 1
    assert names(yard.docker, yard.whose) == ([], [])
    assert names(yard.docker, neighbour.whose) == before
    assert not sweep(yard.docker, of_owner(yard.whose.owner))
    assert not sweep(yard.docker, left_over_of(yard.whose.owner, time.time()))
    assert names(yard.docker, neighbour.whose) == before


def test_two_runs_of_one_owner_side_by_side(yard: Yard) -> None:
    other = dataclasses.replace(yard, whose=dataclasses.replace(yard.whose, run_id=f"{yard.whose.run_id}b"))
    yard.docker.create_network(other.network, other.whose, internal=True)
    yard.start("worker-1", *SLEEP)
    other.start("worker-1", *SLEEP)
    assert not sweep(yard.docker, left_over_of(yard.whose.owner, time.time()))  # both drivers live
    swept = sweep(yard.docker, of_run(other.whose.run_id))
    assert swept.lines() == [
        f"removed container {other.network}-worker-1: of run {other.whose.run_id}",
        f"removed network {other.network}: of run {other.whose.run_id}",
    ]
    assert [state.role for state in yard.docker.containers(yard.whose.owner)] == ["worker-1"]


def test_what_a_killed_driver_left_goes_at_the_next_start(yard: Yard, neighbour: Yard) -> None:
    run_id = f"{yard.whose.run_id}dead"
    driver = subprocess.Popen(
        [sys.executable, "-c", DRIVER, yard.whose.owner, run_id, yard.image],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    assert driver.stdin is not None
    assert driver.stdout is not None
    try:
        container, network = json.loads(driver.stdout.readline())
        assert not sweep(yard.docker, left_over_of(yard.whose.owner, time.time()))  # it lives
        driver.kill()
        driver.wait()
        yard.start("worker-1", *SLEEP)  # ours, beside it
        swept = sweep(yard.docker, left_over_of(yard.whose.owner, time.time()))
    finally:
        driver.kill()
        driver.wait()
        driver.stdin.close()
        driver.stdout.close()
        sweep(yard.docker, of_run(run_id))
    assert [name for name, _ in swept.containers] == [container]
    assert [name for name, _ in swept.networks] == [network]
    assert all("is gone" in reason for _, reason in swept.containers + swept.networks)
    assert [state.role for state in yard.docker.containers(yard.whose.owner)] == ["worker-1"]


def test_one_that_stands_without_a_driver_stays_until_it_expires(yard: Yard) -> None:
    standing = dataclasses.replace(yard.whose, driver="")
    yard.start("worker-1", *SLEEP, whose=standing)
    now_s = time.time()
    assert not sweep(yard.docker, left_over_of(yard.whose.owner, now_s))
    swept = sweep(yard.docker, left_over_of(yard.whose.owner, float(standing.expires_unix_s)))
    assert len(swept.containers) == 1
    assert this_driver() == yard.whose.driver
    assert list(yard.docker.networks(yard.whose.owner)) == [yard.network]  # its driver, this test, lives


def test_what_has_no_labels_of_ours_is_invisible(yard: Yard) -> None:
    """A container that merely bears such a name."""
    name = f"gradstorm-{yard.whose.run_id}-stranger"
    subprocess.run(
        ["docker", "run", "--detach", "--name", name, "--network", "none", "--entrypoint", "", yard.image, *SLEEP],
        check=True,
        capture_output=True,
        env=dict(os.environ),
    )
    try:
        sweep(yard.docker, of_owner(yard.whose.owner))
        assert yard.docker.inspect(name).alive
        assert name not in [state.name for state in yard.docker.containers()]
    finally:
        yard.docker.remove(name)
