"""A fault that does nothing proves nothing: the run is `unknown`, exit code 4, and says which fault it was.

Where the fault itself has to fail, the injector that the run uses is made to do nothing; the proxies, the roles and the
measurement are the real ones.
"""

from __future__ import annotations

import functools
import os
from pathlib import Path
from typing import Any

import pytest

import testbed
from chaos.scenario import parse_scenario
from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_process import HOW_TO_GET_ONE, find_toxiproxy

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ENGINES = [
    pytest.param("local", marks=pytest.mark.local),
    pytest.param("containers", marks=pytest.mark.containers),
]
HEAD = "name: nothing\ntitle: A fault that does nothing\nengines: [local, containers]\nfixed: false\nfaults:\n"
LATENCY = (
    HEAD
    + """\
  - kind: latency
    pairs: [[{pair}]]
    one_way: true
    trigger: {{role: coordinator, step: 5, phase: opened}}
    for_ms: 1500
    delay_ms: 100
"""
)
KILLED_TWICE = (
    HEAD
    + """\
  - kind: kill
    target: worker-2
    trigger: {step: 3, phase: reduce}
  - kind: latency
    pairs: [[worker-1, coordinator]]
    trigger: {role: coordinator, step: 5, phase: opened}
    for_ms: 4000
    delay_ms: 20
  - kind: kill
    target: worker-2
    trigger: {at_ms: 1500}
"""
)


def run(text: str, engine: str, strategy: str, out: Path) -> dict[str, Any]:
    if engine == "local" and find_toxiproxy(os.environ) is None:
        pytest.skip(HOW_TO_GET_ONE)
    return testbed.run(parse_scenario(text, "nothing.yaml"), engine, strategy=strategy, out=out).document


def require_unknown(document: dict[str, Any], fault: str, why: str) -> None:
    told = (document["verdict"], document["reasons"], document["aborted"])
    assert (document["verdict"], document["exit_code"]) == ("unknown", 4), told
    missed = {one["fault"]: one["reason"] for one in document["faults"] if one["state"] == "missed"}
    assert set(missed) == {fault}, told
    assert why in missed[fault], missed
    assert any(fault in reason for reason in document["reasons"]), told


@pytest.mark.parametrize("engine", ENGINES)
def test_a_toxic_that_touches_no_connection(engine: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Toxiproxy, "add", functools.partialmethod(Toxiproxy.add, toxicity=0.0))
    document = run(LATENCY.format(pair="worker-2, coordinator"), engine, "ring", tmp_path / "run")
    require_unknown(document, "1-latency", "it met no message")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_toxic_on_a_link_that_nobody_uses(engine: str, tmp_path: Path) -> None:
    document = run(LATENCY.format(pair="worker-1, worker-2"), engine, "ps", tmp_path / "run")
    require_unknown(document, "1-latency", "it met no message (0 crossed its links while it lasted)")


@pytest.mark.parametrize("engine", ENGINES)
def test_a_kill_of_who_is_dead_already(engine: str, tmp_path: Path) -> None:
    document = run(KILLED_TWICE, engine, "ring", tmp_path / "run")
    require_unknown(document, "3-kill-worker-2", "worker-2 was not running")
