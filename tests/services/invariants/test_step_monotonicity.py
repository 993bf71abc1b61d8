"""Steps, attempts and generations go one way."""

from __future__ import annotations

from services.records import Closed, Committed, Durable, Finished, Recovered, Regrouped, RolledBack, StateApplied
from tests.services.honest_run import LOGGED, HonestRun, Plan, Told
from tests.services.invariants.caught import assert_caught, find

NAME = "step monotonicity"


def test_a_member_that_misses_a_step() -> None:
    assert_caught(HonestRun().drop(StateApplied, step=3, worker=2), NAME, 4, "worker-2", "applied step 4 after step 2")


def test_a_step_that_is_committed_twice() -> None:
    run = HonestRun()
    told = run.told[run.places(Committed, step=3)[0]].fact
    place = run.places(Durable, what="open 4")[0]
    run.told[place:place] = [Told("coordinator", 1, Durable("commit 3.0", LOGGED)), Told("coordinator", 1, told)]
    part = find(run.judge(), NAME)
    assert part["verdict"] == "violated"
    assert "step 3 was committed after step 3" in part["first_violation"]["what"]


def test_a_step_that_is_left_out() -> None:
    run = HonestRun(Plan(steps=3))
    for kind in (Committed, Closed):
        run.drop(kind, step=2)
    part = find(run.judge(), NAME)
    assert part["verdict"] == "violated"


def test_a_run_that_finishes_elsewhere() -> None:
    part = find(HonestRun().replace(Finished, {}, step=7).judge(), NAME)
    assert part["verdict"] == "violated"


def test_a_generation_that_does_not_rise() -> None:
    run = HonestRun(Plan(dies={2: 2}, checkpoint_every=9))
    run.replace(Regrouped, {"generation": 2}, generation=1)
    part = find(run.judge(), NAME)
    assert part["verdict"] == "violated"
    assert "generation 1 follows generation 1" in part["first_violation"]["what"]


def test_a_rollback_that_goes_forward() -> None:
    run = HonestRun(Plan(rolls_back_after=3)).replace(RolledBack, {}, to_step=5)
    assert find(run.judge(), NAME)["verdict"] == "violated"


def test_an_attempt_that_is_closed_again() -> None:
    run = HonestRun(Plan(dies={2: 2}))
    run.replace(Closed, {"step": 2, "attempt": 1}, attempt=0)
    assert find(run.judge(), NAME)["verdict"] == "violated"


def test_a_coordinator_that_comes_back_elsewhere() -> None:
    run = HonestRun(Plan(coordinator_returns_after=(3,))).replace(Recovered, {}, step=1)
    assert_caught(run, NAME, 1, "coordinator", "came back at step 1")
