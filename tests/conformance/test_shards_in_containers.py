"""Layer-sharded training in containers: bitwise what the simulator ends with, six deaths included, and exit code 5."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed

pytestmark = [pytest.mark.containers, pytest.mark.slow, pytest.mark.timeout(400)]


PARTIAL = pytest.param(
    "shards-partial-commit", marks=pytest.mark.alone
)  # its shard has to be back steps before the end


@pytest.mark.parametrize(
    "name", ["shards-clean", "shards-six-kills", PARTIAL, "shards-jitter-reorder", "shards-top50-6bit"]
)
def test_it_ends_as_in_the_simulator(name: str, tmp_path: Path) -> None:
    expected = testbed.run(name, "sim", out=tmp_path / "sim").document
    document = testbed.run(name, "containers", out=tmp_path / "containers").document
    told = f"{name}: {document['reasons']} {document['aborted']}"
    assert document["verdict"] == expected["verdict"] == "pass", told
    assert document["steps_checked"] == document["steps_committed"] == expected["steps_committed"], told
    for key in ("params_sha256", "final_eval_loss", "evaluation_curve", "ages", "payload_bytes_total", "kills"):
        assert document[key] == expected[key], (key, told)
    assert all(fault["witness"]["exit_code"] == 137 for fault in document["faults"]), told


def test_a_stale_boundary_stops_the_run_by_name(tmp_path: Path) -> None:
    document = testbed.run("shards-stale", "containers", out=tmp_path / "run").document
    assert (document["exit_code"], document["stop_condition"]) == (5, "stale boundary")
    assert document["steps_committed"] == 0
