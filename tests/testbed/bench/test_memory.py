"""What counts as memory of a role, and what as its growth."""

from __future__ import annotations

import numpy as np

from services.judge import Judge
from services.records import Committed
from testbed.bench.memory import Sampler, held_bytes
from tests.services.honest_run import HonestRun, Plan


def test_everything_that_can_be_reached_counts_once() -> None:
    array = np.zeros(1000)
    alone = held_bytes([array])
    assert alone > 8000
    assert held_bytes([array, array, array[1:]]) < alone + 1000
    assert held_bytes([array, array.copy()]) > alone + 8000


def test_code_and_classes_are_nobodys_memory() -> None:
    assert held_bytes([np, Sampler, held_bytes]) < 1000


def test_growth_is_the_largest_size_less_the_first() -> None:
    sizes = iter([{"a": 5.0, "b": 2.0}, {"a": 9.0, "b": 1.0}, {"a": 7.0}])
    sampler = Sampler(30, lambda: next(sizes))
    for step in (3, 6, 9):
        sampler.fact("coordinator", committed(step))
    sampler.fact("coordinator", committed(10))
    assert sampler.growth() == {"a": 4.0, "b": 0.0}


def committed(step: int) -> Committed:
    """A commit of that step; the rest of it is of no interest here."""
    blank = dict.fromkeys(Committed.__dataclass_fields__)
    return Committed(**{**blank, "step": step})  # type: ignore[arg-type]


def test_the_judge_keeps_little_of_a_step() -> None:
    def held(steps: int) -> int:
        run = HonestRun(Plan(steps=steps, whole=False))
        judge = Judge(run.dataset)
        for line in run.lines(end=False):
            judge.feed(line)
        return held_bytes(judge)

    assert (held(320) - held(128)) / 192 < 2000  # an epoch every fifth step, a checkpoint every second
