"""Saved, published and resumed states equal the replay: parameters, velocity and every field of the sampler."""

from __future__ import annotations

import json
from typing import Any

import pytest

from services.records import CheckpointWritten, Published, RolledBack, RunStarted
from tests.services.honest_run import HonestRun, Plan
from tests.services.invariants.caught import assert_caught, find

NAME = "checkpoint fidelity"


@pytest.mark.parametrize("kind", [CheckpointWritten, Published])
@pytest.mark.parametrize("digest", ["parameters_digest", "velocity_digest"])
def test_a_saved_state_that_is_another(kind: type, digest: str) -> None:
    assert_caught(HonestRun().replace(kind, {"step": 4}, **{digest: "1" * 64}), NAME, 4)


def _changed(state: dict[str, Any], field: str) -> dict[str, Any]:
    value = state[field]
    if isinstance(value, list):
        return {**state, field: value[1:]}
    if isinstance(value, dict):
        return {**state, field: {**value, "has_uint32": 1}}
    return {**state, field: value + 1}


@pytest.mark.parametrize("field", ["epoch", "committed", "generator", "generator_at_epoch", "seed", "sample_count"])
def test_a_sampler_state_with_another_field(field: str) -> None:
    run = HonestRun()
    told = run.told[run.places(CheckpointWritten, step=4)[0]].fact
    assert isinstance(told, CheckpointWritten)
    state = _changed(json.loads(told.sampler_json), field)
    run.replace(CheckpointWritten, {"step": 4}, sampler_json=json.dumps(state))
    assert_caught(run, NAME, 4, "worker-1", f"{field} differs")


def test_a_sampler_state_that_is_no_json() -> None:
    assert_caught(HonestRun().replace(Published, {"step": 4}, sampler_json="{"), NAME, 4, "coordinator", "not JSON")


def test_a_rollback_to_another_state() -> None:
    run = HonestRun(Plan(rolls_back_after=3)).replace(RolledBack, {}, velocity_digest="2" * 64)
    assert_caught(run, NAME, 2, "coordinator", "rolled back to")


def test_the_start_is_what_its_digests_say() -> None:
    document = HonestRun(Plan(steps=1)).replace(RunStarted, {}, velocity_digest="2" * 64).judge()
    assert find(document, NAME)["first_violation"]["what"].startswith("the velocity that the run starts from")


def test_a_checkpoint_under_the_name_of_another_incarnation() -> None:
    run = HonestRun(Plan(steps=2))
    place = run.places(CheckpointWritten, step=2)[0]
    name = "ckpt-00000002-g1-i9"
    told = run.told[place].fact
    assert isinstance(told, CheckpointWritten)
    document = run.replace(CheckpointWritten, {"step": 2}, name=name).judge()
    assert find(document, NAME)["verdict"] == "violated"
