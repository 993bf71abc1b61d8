"""Values are kept until somebody's is stored; those of a dead contributor are taken over by the next one."""

from __future__ import annotations

import numpy as np

from services.records import Reduced
from services.roles.evidence import EvidenceShelf


def value(step: int, order: tuple[int, ...]) -> Reduced:
    return Reduced(order[-1], 1, step, 0, 1, f"digest {step}", order, np.zeros(3))


def test_the_next_contributor_takes_over_what_the_dead_one_had_shown() -> None:
    shelf = EvidenceShelf()
    for step, order in enumerate([(1, 2, 3), (2, 3), (1, 3)], start=1):
        shelf.keep(value(step, order))
    assert shelf.take_orphans({1, 2, 3}, 3) == []
    assert [fact.step for fact in shelf.take_orphans({2, 3}, 3)] == [3]  # of step 1 worker 2 is the lowest now
    assert [fact.step for fact in shelf.take_orphans({3}, 3)] == [1, 2]
    assert shelf.take_orphans({3}, 3) == []
    assert shelf.find(1, 0) is None


def test_what_is_stored_is_let_go() -> None:
    shelf = EvidenceShelf()
    for step in (1, 2, 3):
        shelf.keep(value(step, (1, 2)))
    shelf.drop(2)
    assert [fact.step for fact in shelf.take_orphans({2}, 2)] == [3]
