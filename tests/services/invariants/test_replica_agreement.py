"""A replica that differs is named, and so is one that nobody heard of."""

from __future__ import annotations

from services.records import StateApplied, StepApplied
from tests.services.honest_run import HonestRun, Plan, not_passed
from tests.services.invariants.caught import assert_caught

NAME = "replica agreement"


def test_one_member_holds_other_parameters() -> None:
    run = HonestRun().replace(StateApplied, {"step": 3, "worker": 2}, parameters_digest="0" * 64)
    assert_caught(run, NAME, 3, "worker-2", "holds another state")


def test_one_member_holds_another_velocity() -> None:
    run = HonestRun().replace(StateApplied, {"step": 3, "worker": 1}, velocity_digest="0" * 64)
    assert_caught(run, NAME, 3, "worker-1")


def test_the_coordinator_was_told_another_state() -> None:
    run = HonestRun()
    told = run.told[run.places(StepApplied, step=4)[0]].fact
    assert isinstance(told, StepApplied)
    rows = (*told.applied[:2], (3, 3, "f" * 64, told.applied[2][3]))
    assert_caught(run.replace(StepApplied, {"step": 4}, applied=rows), NAME, 4, "worker-3")


def test_a_step_without_one_of_its_members() -> None:
    run = HonestRun()
    told = run.told[run.places(StepApplied, step=2)[0]].fact
    assert isinstance(told, StepApplied)
    run.replace(StepApplied, {"step": 2}, applied=told.applied[:2])
    assert_caught(run, NAME, 2, "coordinator", "without worker-3")


def test_a_joiner_adopted_another_state() -> None:
    run = HonestRun(Plan(joins={4: 4}))
    run.replace(StateApplied, {"step": 3, "worker": 4}, velocity_digest="0" * 64)
    assert_caught(run, NAME, 3, "worker-4")


def test_a_step_that_opens_before_all_have_applied_the_last() -> None:
    run = HonestRun().drop(StepApplied, step=3)
    assert_caught(run, NAME, 3, "coordinator", "went on from step 3 before all")


def test_a_run_that_finishes_before_all_have_applied_the_last() -> None:
    run = HonestRun(Plan(steps=4)).drop(StepApplied, step=4)
    assert_caught(run, NAME, 4, "coordinator", "went on from step 4 before all")


def test_what_a_dead_coordinator_heard_may_be_lost_with_it() -> None:
    run = HonestRun(Plan(coordinator_returns_after=(3,))).drop(StepApplied, step=3)
    assert not_passed(run.judge()) == {}
