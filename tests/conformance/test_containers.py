"""The engine `containers`: it ends with what the simulator ends with, faults are seen to act, and nothing is left.

What is left is asked of the daemon by label, and of nothing else: other things may live there.
"""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

import testbed
from chaos.scenario import parse_scenario
from tests.conformance.container_runs import (
    GONE_WITHIN_S,
    UP_WITHIN_S,
    connected,
    left_of,
    run_id_of,
    running,
    toxiproxy_of,
)
from tests.testbed.waiting import wait_until

if TYPE_CHECKING:
    from testbed.containers.docker_adapter import Docker

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(300)]
SLOW = """\
name: slow-link
title: What worker-2 says to the coordinator takes longer for a while
engines: [containers]
fixed: false
training: {steps: 200}
faults:
  - kind: latency
    pairs: [[worker-2, coordinator]]
    one_way: true
    trigger: {role: coordinator, step: 5, phase: opened}
    delay_ms: 100
    for_ms: 3000
"""


@pytest.fixture
def docker() -> Iterator[Docker]:
    with connected() as daemon:
        yield daemon


@pytest.mark.parametrize(
    ("scenario", "strategy"),
    [("kill-at-reduce", "ring"), ("kill-coordinator-tell", "ps")],  # test_container_scenarios.py has all the others
)
def test_it_ends_as_in_the_simulator(scenario: str, strategy: str, tmp_path: Path, docker: Docker) -> None:
    expected = testbed.run(scenario, "sim", strategy=strategy, out=tmp_path / "sim").document
    result = testbed.run(scenario, "containers", strategy=strategy, out=tmp_path / "containers")
    document = result.document
    told = f"{scenario}, {strategy}: {document['reasons']} {document['aborted']}"
    assert document["verdict"] == "pass", told
    assert document["params_sha256"] == expected["params_sha256"], told
    assert document["steps_checked"] == document["steps_committed"] == expected["steps_committed"], told
    assert all(fault["witness"]["exit_code"] == 137 for fault in document["faults"]), told
    assert left_of(docker, document["run_id"]) == []


@pytest.mark.alone
def test_a_latency_is_measured_on_the_trainings_own_link(tmp_path: Path, docker: Docker) -> None:
    result = testbed.run(parse_scenario(SLOW, "slow-link.yaml"), "containers", strategy="ring", out=tmp_path / "run")
    document = result.document
    assert document["verdict"] == "pass", (document["reasons"], document["aborted"])
    (fault,) = document["faults"]
    witness = fault["witness"]
    assert fault["state"] == "undone"
    assert witness["links"] == "worker-2 > coordinator"
    assert witness["delay_ms"] == pytest.approx(100.0, abs=15.0)
    assert max(witness["delay_before_ms"], fault["undo"]["delay_after_ms"]) < 50.0
    assert "not_recovered" not in fault["undo"]
    assert left_of(docker, document["run_id"]) == []


def test_an_interrupted_command_leaves_nothing(tmp_path: Path, docker: Docker) -> None:
    with running(tmp_path, "pause-past-lease", "--steps", "2000") as (
        driver,
        told,
    ):
        assert wait_until(lambda: " stopped\n" in told.read_text(), UP_WITHIN_S), told.read_text()
        assert left_of(docker, run_id_of(tmp_path))
        driver.send_signal(signal.SIGINT)
        code = driver.wait(GONE_WITHIN_S)
    assert code == 130, told.read_text()
    assert left_of(docker, run_id_of(tmp_path)) == []


def test_the_next_run_removes_what_a_driver_left_that_was_killed_in_a_partition(tmp_path: Path, docker: Docker) -> None:
    """Bug kind 18, dirty start."""

    def cut() -> bool:
        from testbed.containers.toxiproxy_errors import ToxiproxyError

        toxiproxy = toxiproxy_of(docker, tmp_path)
        try:
            return toxiproxy is not None and any(proxy.toxics for proxy in toxiproxy.proxies().values())
        except ToxiproxyError:  # it is just starting
            return False

    with running(tmp_path, "partition-heal") as (driver, told):
        assert wait_until(cut, UP_WITHIN_S), told.read_text()
        driver.kill()
    left = run_id_of(tmp_path)
    assert left_of(docker, left)
    after = testbed.run("partition-heal", "containers", strategy="ring", out=tmp_path / "next").document
    assert after["verdict"] == "pass", (after["reasons"], after["aborted"])
    assert left_of(docker, left) == left_of(docker, after["run_id"]) == []
