"""Faults of links on local processes: through a Toxiproxy where one is found, refused by name where none is."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import testbed
from chaos.library import load_scenario
from testbed.containers.toxiproxy_process import BINARY_VARIABLE, HOW_TO_GET_ONE, find_toxiproxy
from testbed.engines.local import LocalEngine
from training.errors import ConfigurationError


def test_without_toxiproxy_it_is_refused_before_anything_starts(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(ConfigurationError) as refused:
        testbed.run("partition-heal", "local", out=tmp_path / "run")
    assert "fault 1-partition: engine local can do partition only through Toxiproxy" in str(refused.value)
    assert HOW_TO_GET_ONE in str(refused.value)
    assert not (tmp_path / "run").exists()


def test_toxiproxy_is_no_help_with_what_it_cannot_do(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(BINARY_VARIABLE, raising=False)
    monkeypatch.setenv("PATH", str(tmp_path))
    assert HOW_TO_GET_ONE not in LocalEngine().refusals(load_scenario("power-cut"), "ring")
    assert LocalEngine().refusals(load_scenario("kill-worker"), "ring") == []


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_a_partition_on_processes_ends_as_in_the_simulator(strategy: str, tmp_path: Path) -> None:
    if find_toxiproxy(os.environ) is None:
        pytest.skip(HOW_TO_GET_ONE)
    expected = testbed.run("partition-heal", "sim", strategy=strategy, out=tmp_path / "sim").document
    document = testbed.run("partition-heal", "local", strategy=strategy, out=tmp_path / "local").document
    assert document["verdict"] == "pass", (document["reasons"], document["aborted"])
    assert document["params_sha256"] == expected["params_sha256"]
    (fault,) = document["faults"]
    assert fault["witness"]["silent_ms"] >= 500
