"""Kind 16, keepalive: every worker computes for a long time and says nothing; no GOAWAY, no new link, nobody evicted.

`GRADSTORM_TEST_SILENT_S=600` makes it the ten minutes of the report that the kind comes from; otherwise it is a time
beyond a lease, and beyond the interval of HTTP/2 pings, which the links' own tests scale down.
"""

from __future__ import annotations

import json
import os
from collections import Counter
from pathlib import Path

import pytest

from chaos.scenario import parse_scenario
from services.shell.options import TransportOptions
from testbed.api import run
from testbed.engines import local_cast
from tests.conformance.silence import SECONDS_VARIABLE

SECONDS = float(os.environ.get(SECONDS_VARIABLE, "12"))
LEASE_MS = 3000.0
SCENARIO = f"""
name: silent-compute
title: A gradient that takes {SECONDS:g} s on every worker
training: {{workers: 2, steps: 4, timing: {{lease_ms: {LEASE_MS}, deadline_ms: {SECONDS * 1000 + 60_000}}}}}
clean_steps: 3
liveness_bound_ms: {SECONDS * 1000 + 60_000}
"""


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(SECONDS + 120)
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_bug_kind_16_a_long_silent_gradient_costs_nobody_its_place(
    strategy: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert max(3 * LEASE_MS, TransportOptions().ping_ms) < SECONDS * 1000
    monkeypatch.setenv(SECONDS_VARIABLE, str(SECONDS))
    monkeypatch.setattr(local_cast, "_FACTORY", "tests.conformance.silence:make_role")
    result = run(parse_scenario(SCENARIO, "silent"), "local", strategy=strategy, out=tmp_path / "run")
    document = result.document
    assert document["verdict"] == "pass", (document["reasons"], document["aborted"])
    assert document["steps_checked"] == document["steps_committed"] == 4
    assert (document["kills"], document["generations"]) == (0, 1)
    assert [one["kind"] for one in document["observations"] if "straggler" in one["kind"]] == []
    entries = [json.loads(line) for log in (result.folder / "logs").glob("*.log") for line in log.open()]
    links = Counter((log_of(entry), entry["peer"]) for entry in entries if entry["event"] == "linked")
    assert links
    assert set(links.values()) == {1}, links  # nobody had to link again
    assert "goaway" not in json.dumps(entries).lower()
    (silent,) = [round(s) for s in gaps_s(result.folder)]
    assert silent >= SECONDS


def log_of(entry: dict[str, str]) -> str:
    return str(entry["role"])


def gaps_s(folder: Path) -> list[float]:
    """How long after its opening each step beyond the first lasted, where that is more than the lease."""
    lines = [json.loads(line) for line in (folder / "history.jsonl").open()]
    opened = {line["body"]["step"]: line["at_ms"] for line in lines if line["kind"] == "Opened"}
    closed = {line["body"]["step"]: line["at_ms"] for line in lines if line["kind"] == "Closed"}
    return [(closed[step] - opened[step]) / 1000 for step in opened if closed[step] - opened[step] > LEASE_MS]
