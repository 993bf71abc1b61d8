"""Every id once per epoch, whatever is dealt, lost or begun too early; a break names the ids."""

from __future__ import annotations

import json

import pytest

from services.records import Committed, Opened, RunStarted
from tests.services.honest_run import Deal, HonestRun, Plan
from tests.services.invariants.caught import assert_caught, find
from training.config import BatchConfig
from training.sampler import Sampler

NAME = "sample accounting"


def test_two_members_are_dealt_the_same_ids() -> None:
    def same(step: int, dealt: Deal) -> Deal:
        return {**dealt, 2: dealt[1]} if step == 3 else dealt

    run = HonestRun(Plan(deal=same))
    assert_caught(run, NAME, 3, "worker-2", "were due")
    assert find(run.judge(), NAME)["repeated"]


def test_ids_of_an_earlier_step_are_committed_again() -> None:
    first: Deal = {}

    def again(step: int, dealt: Deal) -> Deal:
        if step == 1:
            first.update(dealt)
        return dict(first) if step == 3 else dealt

    run = HonestRun(Plan(deal=again))
    assert_caught(run, NAME, 3)
    assert sorted(find(run.judge(), NAME)["repeated"]) == sorted(sample for ids in first.values() for sample in ids)


def test_a_deal_that_skips_an_id() -> None:
    def skipping(step: int, dealt: Deal) -> Deal:
        return {**dealt, 3: dealt[3][1:]} if step == 2 else dealt

    assert_caught(HonestRun(Plan(deal=skipping)), NAME, 2, "worker-3")


def test_an_epoch_that_is_left_too_early_names_what_is_lost() -> None:
    run = HonestRun(Plan(steps=5, samples=40, batch=BatchConfig("per_worker", 2)))
    for kind in (Opened, Committed):
        run.replace(kind, {"step": 5}, epoch=1)
    document = run.judge()
    part = find(document, NAME)
    assert part["verdict"] == "violated"
    assert "were not committed" in part["first_violation"]["what"]
    assert document["samples"]["lost"] == 40 - 4 * 6


@pytest.mark.parametrize("remaining", [0, 39, 41])
def test_a_wrong_count_of_what_remains(remaining: int) -> None:
    assert_caught(HonestRun().replace(Opened, {"step": 1}, remaining=remaining), NAME, 1, "coordinator")


def test_a_member_is_left_out_of_the_deal() -> None:
    run = HonestRun()
    told = run.told[run.places(Opened, step=2)[0]].fact
    assert isinstance(told, Opened)
    document = run.replace(Opened, {"step": 2}, deals={"1": told.deals["1"], "2": told.deals["2"]}).judge()
    assert find(document, NAME)["verdict"] == "violated"


def test_a_fresh_run_that_does_not_start_at_its_seed() -> None:
    run = HonestRun(Plan(steps=1))
    other = Sampler(40, 8).state().to_json()
    document = run.replace(RunStarted, {}, sampler_json=json.dumps({**other, "seed": 7})).judge()
    assert find(document, NAME)["verdict"] == "violated"


def test_epochs_and_samples_are_counted() -> None:
    document = HonestRun(Plan(steps=12, samples=20, batch=BatchConfig("per_worker", 2))).judge()
    # 20 samples at 6 a step: 6 + 6 + 6 + 2, three epochs in twelve steps
    assert document["samples"] == {"epochs": 3, "committed": 60, "lost": 0, "repeated": 0}
