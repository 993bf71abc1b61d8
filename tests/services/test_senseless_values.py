"""Values that no run has, each in the place where going by it would take for ever or fill the memory."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from typing import Any

import pytest

from services.judge import Judge
from services.records import Committed, Opened, Published, RolledBack, RunStarted
from services.shards.bookkeeping import STEPS_AHEAD_MAX, Batches, require_sizes
from tests.services.honest_run import HonestRun, Plan
from tests.services.roles.shard_world import CORPUS, config

HUGE = 10**12
PEAK_MIB_MAX = 16.0


def started_with(**changes: Any) -> Callable[[], HonestRun]:
    """`config_json` or `sampler_json` with other values; "model.x" is the model's."""

    def make() -> HonestRun:
        run = HonestRun()
        fact = run.told[run.places(RunStarted)[0]].fact
        assert isinstance(fact, RunStarted)
        texts = {"config_json": json.loads(fact.config_json), "sampler_json": json.loads(fact.sampler_json)}
        for name, value in changes.items():
            for document in texts.values():
                if name in document:
                    document[name] = value
                elif name in document.get("model", {}):
                    document["model"][name] = value
        return run.replace(RunStarted, {}, **{name: json.dumps(document) for name, document in texts.items()})

    return make


def rolled_back(**changes: Any) -> Callable[[], HonestRun]:
    return lambda: HonestRun(Plan(rolls_back_after=3)).replace(RolledBack, {}, **changes)


SENSELESS: dict[str, Callable[[], HonestRun]] = {
    "a rollback far ahead": rolled_back(to_step=HUGE),
    "a rollback far behind": rolled_back(to_step=-HUGE),
    "a commit of an epoch far ahead": lambda: HonestRun().replace(Committed, {"step": 2}, epoch=HUGE),
    "a deal of an epoch far ahead": lambda: HonestRun().replace(Opened, {"step": 2}, epoch=HUGE),
    "a commit of a step far ahead": lambda: HonestRun().replace(Committed, {"step": 6}, step=HUGE),
    "a checkpoint far ahead": lambda: HonestRun().replace(Published, {"step": 4}, step=HUGE),
    "more samples than there are": started_with(sample_count=HUGE),
    "fewer samples than none": started_with(sample_count=-5),
    "an epoch far ahead": started_with(epoch=HUGE),
    "a million classes": started_with(class_count=10**6),
    "a million features": started_with(feature_count=10**6),
    "no rest between checkpoints": started_with(checkpoint_every=0),
}


@pytest.mark.timeout(30)
@pytest.mark.parametrize("name", SENSELESS)
def test_it_is_no_pass_and_costs_nothing(name: str) -> None:
    run = SENSELESS[name]()
    judge = Judge(run.dataset)
    tracemalloc.start()
    try:
        for line in run.lines():
            judge.feed(line)
        document = judge.finish()
        assert tracemalloc.get_traced_memory()[1] < PEAK_MIB_MAX * 2**20
    finally:
        tracemalloc.stop()
    assert document["verdict"] in ("violated", "unknown")
    assert "MemoryError" not in json.dumps(document, allow_nan=False)


SIZES: dict[str, dict[str, Any]] = {
    "batch": {"batch": HUGE},
    "micro-batches": {"micro_batches": HUGE},
    "more micro-batches than contexts": {"micro_batches": 6},
    "evaluation": {"evaluation_contexts": HUGE},
    "context": {"model": {"context": HUGE}},
    "no context": {"model": {"context": 0}},
    "half a context": {"batch": 0.5},
}


@pytest.mark.parametrize("name", SIZES)
def test_sizes_of_shards_that_no_run_has(name: str) -> None:
    sizes = json.loads(config().to_json())
    require_sizes(sizes)
    with pytest.raises(ValueError, match="of"):
        require_sizes({**sizes, **SIZES[name]})


@pytest.mark.timeout(30)
@pytest.mark.parametrize("step", [HUGE, 0, -1, STEPS_AHEAD_MAX + 2])
def test_a_step_of_shards_that_has_not_come(step: int) -> None:
    batches = Batches(3, 5, 12, CORPUS.train)
    batches.at(1)
    with pytest.raises(ValueError, match=f"step {step} after step 1"):
        batches.at(step)
