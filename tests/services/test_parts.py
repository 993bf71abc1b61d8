"""Whole arrays as windows of parts: whatever is repeated, lost or out of order, what is put together is the array."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from services.jobs import State
from services.messages import Fetch
from services.parts import SOURCES_MAX, WINDOW_PARTS, Assembly, Early, array_parts, state_parts


@pytest.mark.parametrize("elements", [1, 7, 8, 9, 63, 64, 65, 200])
@pytest.mark.parametrize("chunk", [1, 3, 8, 1000])
def test_a_state_comes_over_in_windows_with_losses(elements: int, chunk: int) -> None:
    generator = np.random.default_rng(elements * 1000 + chunk)
    state = State.of(generator.normal(size=elements), generator.normal(size=elements))
    assembly = Assembly("worker-1", Fetch(3, 9, 0, "state"), 2 * elements, chunk)
    for _ in range(4 * (2 * elements // chunk + 2)):
        parts = state_parts(state, assembly.fetch, chunk)
        assert len(parts) <= WINDOW_PARTS
        kept = [part for part in parts if generator.random() < 0.7]
        for part in [*kept, *kept[:1]]:
            assert assembly.fits(part)
            assembly.put(part)
        if assembly.complete:
            break
        assembly.ask()
    assert assembly.complete
    assert assembly.array.tobytes() == np.concatenate((state.parameters, state.velocity)).tobytes()


def test_a_window_is_asked_for_once_the_one_before_is_complete() -> None:
    array = np.arange(20.0)
    fetch = Fetch(1, 2, 3, "value")
    assembly = Assembly("worker-1", fetch, 20, 1)
    answers = [assembly.put(part) for part in array_parts(array, fetch, (1, 2), 1)]
    assert answers == [False] * (WINDOW_PARTS - 1) + [True]
    assert assembly.ask().first == WINDOW_PARTS
    assert not assembly.complete


def test_a_part_of_something_else_does_not_fit() -> None:
    array, fetch = np.arange(6.0), Fetch(1, 2, 3, "value")
    assembly = Assembly("worker-1", fetch, 6, 4)
    for other, chunk, values in (
        (Fetch(1, 2, 4, "value"), 4, array),
        (Fetch(1, 3, 3, "value"), 4, array),
        (Fetch(1, 2, 3, "state"), 4, array),
        (fetch, 3, array),
        (fetch, 4, np.arange(7.0)),
    ):
        assert not any(assembly.fits(part) for part in array_parts(values, other, (), chunk)[:1])


def test_progress_is_told_once() -> None:
    fetch = Fetch(1, 2, 3, "value")
    assembly = Assembly("worker-1", fetch, 6, 2)
    assert not assembly.progressed()
    assembly.put(array_parts(np.arange(6.0), fetch, (), 2)[0])
    assert assembly.progressed()
    assert not assembly.progressed()


def test_early_parts_are_kept_for_the_newest_attempt_only() -> None:
    early = Early()
    old = array_parts(np.arange(2.0), Fetch(1, 5, 0, "chain"), (1,), 1)
    new = array_parts(np.arange(2.0), Fetch(2, 5, 1, "chain"), (1,), 1)
    for part in [*old, *new, *old, *new]:
        assert early.keep("worker-1", part, 2, 1)
    assert early.take(1, 5, 0) == []
    assert [part for _, part in early.take(2, 5, 1)] == new
    assert early.take(2, 5, 1) == []


def test_who_claims_to_be_far_ahead_pushes_out_nothing_of_the_others() -> None:
    early = Early()
    due = array_parts(np.arange(2.0), Fetch(2, 5, 1, "chain"), (1,), 1)
    ahead = array_parts(np.arange(2.0), Fetch(10**9, 5, 1, "chain"), (1,), 1)
    for source, part in (("worker-1", due[0]), ("worker-3", ahead[0]), ("worker-1", due[1])):
        assert early.keep(source, part, 2, 1)
    assert early.take(2, 5, 1) == [("worker-1", part) for part in due]


@pytest.mark.parametrize(
    "lie", [{"index": 2}, {"index": -1}, {"total": 10**9}, {"count": 7}, {"start": 1}, {"lane": "x"}]
)
def test_what_is_no_chunk_of_the_gradient_is_not_kept(lie: dict[str, Any]) -> None:
    early = Early()
    part = replace(array_parts(np.arange(2.0), Fetch(2, 5, 1, "chain"), (1,), 1)[0], **lie)
    assert not early.keep("worker-1", part, 2, 1)
    assert early.take(2, 5, 1) == []


def test_invented_names_do_not_fill_the_memory() -> None:
    early = Early()
    (part, _) = array_parts(np.arange(2.0), Fetch(2, 5, 1, "chain"), (1,), 1)
    for number in range(2 * SOURCES_MAX):
        assert early.keep(f"worker-{number}", part, 2, 1)
    assert len(early.take(2, 5, 1)) == SOURCES_MAX
