"""The judge over whole honest histories, told in order and interleaved at random."""

from __future__ import annotations

import pytest

from tests.services.honest_run import HonestRun, Plan, not_passed
from training.config import BatchConfig, ModelConfig

HONEST = {
    "softmax": Plan(),
    "mlp": Plan(model=ModelConfig("mlp", 4, 3, 5)),
    "a death in each of two steps": Plan(workers=4, dies={2: 2, 4: 1}),
    "death and join": Plan(dies={1: 3}, joins={4: 4}),
    "rollback": Plan(rolls_back_after=3),
    "coordinator returns": Plan(coordinator_returns_after=(3,)),
    "coordinator returns again": Plan(coordinator_returns_after=(1, 3, 4), dies={2: 2}),
    "non-finite": Plan(spoils={2: 1}),
    "contributions not recorded whole": Plan(whole=False),
    "global batch over epochs": Plan(batch=BatchConfig("global", 7), steps=14),
    "one worker": Plan(workers=1, steps=3),
    "more workers than samples": Plan(workers=5, samples=3, steps=4),
}


@pytest.mark.parametrize("seed", [None, 1, 2])
@pytest.mark.parametrize("name", HONEST)
def test_honest_history_passes(name: str, seed: int | None) -> None:
    document = HonestRun(HONEST[name]).judge(seed)
    assert not_passed(document) == {}
    assert document["reasons"] == []
    assert document["verdict"] == "pass"
    assert document["steps_checked"] == document["steps_committed"] == HONEST[name].steps
    assert document["gradient"]["worst_error_floors"] <= 4
