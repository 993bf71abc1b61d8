"""A run goes on from the very state that its checkpoint holds, as the driver read it."""

from __future__ import annotations

import hashlib
import json

import pytest

from services.records import Expectation, RunStarted
from tests.services.honest_run import HonestRun
from tests.services.invariants.caught import assert_caught

NAME = "checkpoint fidelity"


def promised(run: HonestRun) -> dict[str, str | int | float]:
    """What an honest driver read."""
    told = run.told[run.places(RunStarted)[0]].fact
    assert isinstance(told, RunStarted)
    sampler = json.dumps(json.loads(told.sampler_json), sort_keys=True, separators=(",", ":"))
    return {
        "resumed_step": told.step,
        "resumed_parameters": told.parameters_digest,
        "resumed_velocity": told.velocity_digest,
        "resumed_sampler": hashlib.sha256(sampler.encode()).hexdigest(),
    }


def resumed(**changes: str | int | float) -> HonestRun:
    run = HonestRun()
    return run.replace(Expectation, {}, promises={**promised(run), **changes})


def test_the_same_state() -> None:
    for seed in range(4):
        assert resumed().judge(seed)["verdict"] == "pass"


@pytest.mark.parametrize("what", ["parameters", "velocity", "sampler", "step"])
def test_another_state(what: str) -> None:
    run = resumed(**{f"resumed_{what}": 3 if what == "step" else "0" * 64})
    assert_caught(run, NAME, 0, "coordinator", f"from another {what} than the checkpoint holds")
