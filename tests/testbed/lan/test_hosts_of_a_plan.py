"""`gradstorm plan` followed to the letter: hosts that wait, a driver that attaches them, a run that is proved.

On this machine with several ports; and in network namespaces, each host with an address of its own, where that can be
(root and `ip netns`): there nothing is shared but the network and the disk, and no file crosses but over the wire.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import testbed
from tests.testbed.lan.hosts import Namespaces, ThisMachine, follow, free_ports, gradstorm

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]


@pytest.mark.local
@pytest.mark.parametrize(
    ("scenario", "options"),
    [
        ("shards-kill-commit", []),
        ("kill-at-reduce", ["--strategy", "ring"]),
        ("kill-server-gathering", ["--strategy", "ps"]),
    ],
)
def test_hosts_at_several_ports_end_as_in_the_simulator(scenario: str, options: list[str], tmp_path: Path) -> None:
    strategy = options[1] if options else None
    expected = testbed.run(scenario, "sim", strategy=strategy, out=tmp_path / "sim").document
    printed = gradstorm("plan", scenario, "--hosts", "127.0.0.1", "--port", free_ports(20), *options, home=tmp_path)
    document = follow(printed, ThisMachine(), tmp_path)
    assert document["engine"] == "lan"
    assert document["params_sha256"] == expected["params_sha256"]
    assert document["steps_checked"] == document["steps_committed"] == expected["steps_committed"]
    assert all(fault["witness"]["exit_code"] == -9 for fault in document["faults"])


@pytest.mark.hosts
@pytest.mark.parametrize(
    ("scenario", "options", "boundary_bytes"),
    [
        ("shards-top50-6bit", [], True),
        ("clean", ["--strategy", "ring", "--workers", "3"], False),
        ("clean", ["--strategy", "ps", "--workers", "3"], False),
    ],
)
def test_hosts_with_addresses_of_their_own(
    scenario: str, options: list[str], boundary_bytes: bool, tmp_path: Path
) -> None:
    strategy = options[1] if options else None
    workers = int(options[3]) if options else None
    expected = testbed.run(scenario, "sim", strategy=strategy, workers=workers, out=tmp_path / "sim").document
    with Namespaces(f"gs{os.getpid()}", 4) as hosts:
        *members, driver = hosts.addresses
        printed = gradstorm(
            "plan", scenario, "--hosts", ",".join(members), "--at", driver, *options, home=tmp_path
        )  # fmt: skip
        document = follow(printed, hosts, tmp_path)
    assert document["params_sha256"] == expected["params_sha256"]
    assert document["steps_checked"] == document["steps_committed"] == expected["steps_committed"]
    if boundary_bytes:
        assert document["payload_bytes"] == expected["payload_bytes"]
        assert document["ages"] == expected["ages"]
