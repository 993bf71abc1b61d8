"""Steps commit in time after the healing, and the run ends as it should."""

from __future__ import annotations

import dataclasses

import pytest

from services.judge import Judge
from services.records import Durable, Expectation, FaultActed, FaultArmed, FaultMissed, Finished, Healed, RunStarted
from tests.services.honest_run import HonestRun, Plan, end_line
from tests.services.invariants.caught import assert_caught, assert_unknown, find

NAME = "liveness"


def _healed(before_step: int, bound_ms: float, clean_steps: int = 2) -> HonestRun:
    return HonestRun().insert_before(Durable, {"what": f"open {before_step}"}, "driver", Healed(bound_ms, clean_steps))


def test_in_time() -> None:
    assert _healed(3, 1000.0).judge()["verdict"] == "pass"


@pytest.mark.parametrize("step_ms", [100.0, 1e6])
def test_too_late(step_ms: float) -> None:
    document = _healed(3, 1000.0).judge(step_ms=step_ms)
    part = find(document, NAME)
    assert part["verdict"] == "violated"
    assert "the bound is 1000 ms" in part["first_violation"]["what"]


def test_an_end_too_soon_after_the_healing() -> None:
    assert_unknown(_healed(6, 1000.0, clean_steps=3), "the run ended 1 steps after the healing", NAME)


def test_steps_heard_of_before_the_healing_count_from_the_step_it_names() -> None:
    """A verifier that was away hears of the steps first and of the healing last."""
    late = HonestRun().insert_before(Finished, {}, "driver", Healed(1000.0, 3, step=3))
    assert late.judge()["verdict"] == "pass"
    too_late = HonestRun().insert_before(Finished, {}, "driver", Healed(1000.0, 3, step=5))
    assert_unknown(too_late, "the run ended 1 steps after the healing", NAME)


def test_a_stop_after_the_healing() -> None:
    run = _healed(6, 1000.0, clean_steps=3).replace(Finished, {}, condition="nobody left")
    part = find(run.judge(), NAME)
    assert part["verdict"] == "violated"
    assert "1 of 3 steps" in part["first_violation"]["what"]


def test_a_stop_that_nobody_promised_when_all_clean_steps_are_there() -> None:
    run = _healed(3, 1000.0).replace(Finished, {}, condition="nobody left")
    assert_unknown(run, "stopped by 'nobody left' unasked", NAME)


@pytest.mark.parametrize("healed", [False, True])
def test_faults_that_are_never_told_as_undone(healed: bool) -> None:
    run = _healed(3, 1000.0) if healed else HonestRun()
    fault = "1-kill-worker-9"
    run.insert_before(Durable, {"what": "open 2"}, "driver", FaultArmed(fault, "kill", "worker-9", {}))
    run.insert_before(Durable, {"what": "open 2"}, "driver", FaultActed(fault, {"exit_code": -9}))
    if healed:
        assert run.judge()["verdict"] == "pass"
    else:
        assert_unknown(run, "nobody told that all are undone", NAME)


def test_a_stop_before_the_healing() -> None:
    assert_unknown(HonestRun().replace(Finished, {}, condition="disk ENOSPC"), "stopped by 'disk ENOSPC'", NAME)


def test_a_stop_that_was_promised() -> None:
    run = HonestRun().replace(Finished, {}, condition="disk ENOSPC")
    assert run.replace(Expectation, {}, promises={"condition": "disk ENOSPC"}).judge()["verdict"] == "pass"


def test_a_promised_stop_that_did_not_come() -> None:
    run = HonestRun().replace(Expectation, {}, promises={"condition": "disk ENOSPC"})
    assert_unknown(run, "promises to stop by 'disk ENOSPC'", NAME)


def test_no_end() -> None:
    assert_unknown(HonestRun().drop(Finished), "was not seen to end", NAME)


def test_finished_before_its_last_step() -> None:
    run = HonestRun(Plan(steps=6))
    config = run.config.to_json().replace('"steps":6', '"steps":9')
    assert_caught(run.replace(RunStarted, {}, config_json=config), NAME, 6, "coordinator", "finished at step 6 of 9")


@pytest.mark.parametrize(("bound_ms", "verdict"), [(1000.0, "violated"), (1e6, "unknown")])
def test_a_run_that_stands_still_after_the_healing(bound_ms: float, verdict: str) -> None:
    """Given up by the driver; whether that is a violation depends on how long nothing had been committed."""
    run = _healed(3, bound_ms).insert_before(Finished, {}, "driver", FaultMissed("schedule", "no step moved"))
    run.drop(Finished)
    lines = run.lines(step_ms=1.0, end=False)
    lines[-1] = dataclasses.replace(lines[-1], at_ms=lines[-1].at_ms + 5000.0)
    judge = Judge(run.dataset)
    for line in [*lines, end_line(lines)]:
        judge.feed(line)
    part = find(judge.finish(), NAME)
    assert part["verdict"] == verdict
    if verdict == "violated":
        assert "nothing was committed for" in part["first_violation"]["what"]
