"""Old generations and incarnations have no effect, and a promised refusal is seen."""

from __future__ import annotations

import dataclasses

import pytest

from services.records import CheckpointWritten, Durable, Expectation, Opened, Proven, Published, Refused, StateApplied
from tests.services.honest_run import HonestRun, Plan
from tests.services.invariants.caught import assert_caught, assert_unknown, find

NAME = "fencing"


def test_a_step_opened_in_an_old_generation() -> None:
    run = HonestRun(Plan(coordinator_returns_after=(2,))).replace(Opened, {"step": 3}, generation=1)
    assert_caught(run, NAME, 3, "coordinator", "current is 2")


def test_a_fenced_member_whose_word_still_counts() -> None:
    run = HonestRun(Plan(dies={2: 2}))
    told = StateApplied(2, 2, 2, 3, "a" * 64, "b" * 64)
    place = run.places(StateApplied, step=3, worker=3)[0]
    fact = run.told[place].fact
    assert isinstance(fact, StateApplied)
    told = dataclasses.replace(fact, worker=2, incarnation=2)
    run.insert_before(StateApplied, {"step": 3, "worker": 3}, "worker-2", dataclasses.replace(told, adopted=False))
    part = find(run.judge(), NAME)
    assert part["first_violation"]["role"] == "worker-2"
    assert "no member of generation 2" in part["first_violation"]["what"]


def test_a_checkpoint_of_a_fenced_member_is_published() -> None:
    run = HonestRun(Plan(dies={2: 1}, checkpoint_every=4))
    old = run.told[run.places(Published, step=4)[0]].fact
    assert isinstance(old, Published)
    name = "ckpt-00000004-g1-i1"
    run.replace(Durable, {"what": f"publish 4 {old.name}"}, what=f"publish 4 {name}")
    run.replace(Published, {"step": 4}, name=name, writer=1, incarnation=1)
    run.drop(CheckpointWritten, step=4)
    assert_caught(run, NAME, 4, "worker-1", "published")


def test_an_old_incarnation_that_is_taken_for_proved() -> None:
    run = HonestRun(Plan(dies={2: 2}, joins={4: 2}))
    run.replace(Proven, {"worker": 2, "step": 3}, incarnation=2)
    assert_caught(run, NAME, 3, "worker-2")


@pytest.mark.parametrize("refusals", [0, 1, 2])
def test_refusals_that_a_scenario_promises(refusals: int) -> None:
    run = HonestRun().replace(Expectation, {}, promises={"refused_stale": 2})
    for _ in range(refusals):
        run.insert_before(
            Opened, {"step": 3}, "coordinator", Refused("Offer", "worker-2", 2, 1, 2, "old generation", 2)
        )
    if refusals == 2:
        assert run.judge()["verdict"] == "pass"
    else:
        assert_unknown(run, "2 refused stale messages were promised", NAME)


def test_a_generation_that_nobody_began() -> None:
    assert_unknown(
        HonestRun().replace(StateApplied, {"step": 3}, generation=9), "generation 9, which nobody began", NAME
    )
