"""Whoever has the token may report what it likes: the verifier stores it, goes on, and says that it cannot tell."""

from __future__ import annotations

import pytest

from services.events import Received
from services.messages import Conclude, Numbered
from tests.services.honest_run import HonestRun, Plan
from tests.services.roles.verifier_bench import Bench, expected_of, report_all, save_dataset

LIES = {
    "no JSON": ("Committed", "{"),
    "no object": ("Committed", "[1]"),
    "no step": ("Committed", "{}"),
    "a step that is none": ("ShardsCommitted", '{"step":"x"}'),
    "a death": ("Died", '{"worker":1}'),
    "a value": ("Reduced", '{"step":[]}'),
    "a rollback": ("RolledBack", '{"to_step":null}'),
    "a kind that there is not": ("Conquered", "{}"),
}


@pytest.mark.parametrize("name", LIES)
def test_a_record_that_makes_no_sense_brings_nobody_down_not_even_the_next_launch(name: str) -> None:
    run = HonestRun(Plan(steps=2))
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    bench.report("worker-9", 1, [Numbered(1, *LIES[name])])
    report_all(bench, run)
    again = Bench(run.dataset, bench.disk)
    again.report("worker-9", 1, [Numbered(2, *LIES[name])])
    document = again.conclude({**expected_of(run), "worker-9": {"1": 2}})
    assert document is not None
    assert document["verdict"] == "unknown"
    assert document["steps_checked"] == document["steps_committed"] == 2
    assert any("line 1: " in reason for reason in document["reasons"]), document["reasons"]


def test_nobody_but_the_driver_ends_the_run_for_the_verifier() -> None:
    run = HonestRun(Plan(steps=2))
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    for source in ("worker-1", "coordinator", "server"):
        bench.give(Received(source, 1, Conclude("{}")))
    bench.pass_time(10_000.0)
    assert bench.verdict is None
    report_all(bench, run)
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass", document["reasons"]
