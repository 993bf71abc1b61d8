"""Boundaries of an attempt that is not open at a shard yet: kept as far as one attempt can need them, no further."""

from __future__ import annotations

from dataclasses import replace

import pytest

from services.events import COORDINATOR, Compute, Computed, Effect, Received, Record, Started
from services.messages import Boundary, DataPart, Welcome
from services.records import Refused
from services.roles.shard import Shard
from tests.services.roles.shard_world import CORPUS, config
from training.corpus_bytes import corpus_to_bytes

BLOB = corpus_to_bytes(CORPUS)
SETTINGS = config()  # 5 contexts in 2 micro-batches, 12 tokens, width 8
DENSE_BYTES = 8 + 8 * 3 * 12 * 8
EARLY = Boundary(1, 1, 0, 0, 1, "forward", 0, bytes(DENSE_BYTES))


def shard_2() -> Shard:
    """It holds the data, and no step is open."""
    shard = Shard(2, 1)
    for event in (
        Started("numerics"),
        Received(COORDINATOR, 1, Welcome(1, 1, SETTINGS.to_json(), len(BLOB))),
        Received(COORDINATOR, 1, DataPart(0, len(BLOB), BLOB)),
    ):
        for effect in shard.handle(0.0, event):
            if isinstance(effect, Compute):
                shard.handle(0.0, Computed(effect.token, effect.job()))
    return shard


def refusals(effects: list[Effect]) -> list[str]:
    return [one.fact.reason for one in effects if isinstance(one, Record) and isinstance(one.fact, Refused)]


def hear(shard: Shard, boundary: Boundary, source: str = "shard-1") -> list[str]:
    return refusals(shard.handle(0.0, Received(source, 1, boundary)))


def kept_bytes(shard: Shard) -> int:
    return sum(len(boundary.payload) for boundary, _ in shard._early.values())


WRONG = {
    "of nobody's": (EARLY, "shard-3"),
    "of a worker": (EARLY, "worker-1"),
    "over another cut": (replace(EARLY, cut=2), "shard-1"),
    "of a micro-batch that there is not": (replace(EARLY, micro_batch=2), "shard-1"),
    "of a micro-batch before the first": (replace(EARLY, micro_batch=-1), "shard-1"),
    "in no direction": (replace(EARLY, direction="sideways"), "shard-1"),
    "back from in front": (replace(EARLY, direction="backward"), "shard-1"),
    "larger than one can be": (replace(EARLY, payload=bytes(DENSE_BYTES + 9)), "shard-1"),
}


@pytest.mark.parametrize("name", WRONG)
def test_what_no_attempt_can_need_is_not_kept(name: str) -> None:
    shard = shard_2()
    assert hear(shard, *WRONG[name]) == ["contract"]
    assert kept_bytes(shard) == 0


def test_whatever_attempts_are_claimed_no_more_bytes_are_kept_than_one_has() -> None:
    shard = shard_2()
    for attempt in range(2000):
        for micro_batch in (0, 1):
            assert hear(shard, replace(EARLY, attempt=attempt, micro_batch=micro_batch)) == []
    assert kept_bytes(shard) == 2 * DENSE_BYTES
    assert {boundary.attempt for boundary, _ in shard._early.values()} == {1999}
    assert hear(shard, replace(EARLY, attempt=3)) == ["late"]
    assert hear(shard, replace(EARLY, attempt=1999)) == ["duplicate"]


def test_one_neighbours_claim_does_not_push_out_what_the_other_sent() -> None:
    shard = shard_2()
    back = Boundary(1, 1, 0, 0, 2, "backward", 0, bytes(DENSE_BYTES))
    assert hear(shard, back, "shard-3") == []
    assert hear(shard, replace(EARLY, step=2**40)) == []
    assert (back, 0.0) in shard._early.values()
