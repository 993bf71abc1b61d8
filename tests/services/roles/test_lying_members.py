"""Members that lie, strangers, and messages that come again: refused before anything is counted, allocated or summed.

What cannot be seen when it is said (a wrong gradient with a right digest, for example) is caught and named by the
verifier: those lies are planted bugs (`testbed.plants.lies`), made in whole runs below.
"""

from __future__ import annotations

import math
import pickle
import re
import tracemalloc
import zlib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import testbed
from services.codec import decode
from services.events import COORDINATOR, Effect, Received, Record, Send
from services.exchange import Attempt, ContractBroken, Gather, PushExchange, RingExchange
from services.messages import (
    CheckpointSaved,
    Close,
    Commit,
    Enlist,
    EvidenceStored,
    Finish,
    Join,
    Message,
    Offer,
    Part,
    Proved,
    Ready,
    SaveCheckpoint,
    Share,
    Turned,
    Welcome,
)
from services.records import Closed, Committed, Finished, Published, Refused
from services.roles.server import Server
from services.roles.stepping import MISMATCHED_ATTEMPTS_MAX
from services.roles.worker import Worker
from services.wire import messages_pb2 as pb
from services.wire_error import WireError
from testbed.plants import PLANTS
from tests.services.roles.coordinator_bench import Bench

# ---------------------------------------------------------------- to the coordinator

Lie = Callable[[Bench], Message]

WRONG_OFFERS: dict[str, tuple[Lie, str]] = {
    "samples of somebody else": (lambda b: replace(b.offer(1), sample_ids=b.offer(2).sample_ids), "contract"),
    "a sample less than dealt": (lambda b: replace(b.offer(1), sample_ids=b.offer(1).sample_ids[:1]), "contract"),
    "a sample more than dealt": (lambda b: replace(b.offer(1), sample_ids=(*b.offer(1).sample_ids, 0)), "contract"),
    "no samples at all": (lambda b: replace(b.offer(1), sample_ids=(), digest="", element_count=0), "contract"),
    "a gradient of another size": (lambda b: replace(b.offer(1), element_count=2**31), "contract"),
    "the step before": (lambda b: replace(b.offer(1), step=0), "late"),
    "a step to come": (lambda b: replace(b.offer(1), step=2), "late"),
    "an old generation": (lambda b: replace(b.offer(1), generation=0), "old generation"),
    "a commit of its own": (lambda b: Commit(1, 1, 0, False, "d" * 64, "worker-1", ""), "contract"),
    "a close of its own": (lambda b: Close(1, 1, 0, (Share(1, 1, 2),), 2, ()), "contract"),
    "the end of the run": (lambda b: Finish(1, "finished"), "contract"),
    "a welcome": (lambda b: Welcome(9, 1, "{}", 0), "contract"),
    "to be the parameter server": (lambda b: Enlist("here:1", "n"), "contract"),
    "to be another worker": (lambda b: Join(2, 1, "", "n"), "contract"),
    "to be worker 0": (lambda b: Join(0, 1, "", "n"), "contract"),
    "ready before anything is closed": (lambda b: b.ready(1), "late"),
    "applied before anything is committed": (lambda b: b.applied(), "late"),
    "a proof that nobody asked for": (lambda b: Proved(1, 0, "p", "v"), "late"),
    "a checkpoint that nobody asked for": (lambda b: CheckpointSaved(1, 1, "ckpt-00000001-g1-i1", "p", "v"), "late"),
}


def test_who_claims_a_place_that_is_taken_is_turned_away_and_the_first_stays_a_member() -> None:
    bench = Bench()
    (refused,) = bench.hear(2, Join(2, 1, "10.0.0.99:1", "numerics"), 0)
    assert refused.reason == "claimed"
    assert bench.last(2, Turned) == Turned(0, "worker-2 is at 10.0.0.2:1 already", fenced=False)
    assert [peer.worker for peer in bench.coordinator.peers.members()] == [1, 2, 3]
    assert bench.hear(2, bench.offer(2)) == []


def test_what_an_earlier_launch_said_late_does_not_evict_the_newer_one() -> None:
    bench = Bench()
    bench.hear(2, Join(2, 3, "10.0.0.9:1", "numerics"), 0)  # a new launch, elsewhere: incarnation 4
    turned = [one for one in bench.sent if isinstance(one.message, Turned)]
    (refused,) = bench.hear(2, Join(2, 2, "10.0.0.8:1", "numerics"), 0)
    assert (refused.what, refused.reason) == ("Join", "old launch")
    assert [one for one in bench.sent if isinstance(one.message, Turned)] == turned
    known = bench.coordinator.peers.get(2)
    assert known is not None
    assert (known.incarnation, known.launch, known.address) == (4, 3, "10.0.0.9:1")


@pytest.mark.parametrize("name", WRONG_OFFERS)
def test_an_open_step_is_as_if_nothing_had_been_said(name: str) -> None:
    lie, reason = WRONG_OFFERS[name]
    bench = Bench()
    written = list(bench.persists)
    refused = bench.hear(1, lie(bench))
    assert [fact.reason for fact in refused] == [reason]
    assert refused[0].source == "worker-1"
    assert bench.persists == written
    for worker in (1, 2, 3):
        assert bench.hear(worker, bench.offer(worker)) == []
    (closed,) = bench.told(Closed)
    assert closed.contributors == ((1, 1, 2), (2, 2, 2), (3, 3, 2))


def test_another_gradient_under_the_same_key_is_a_conflict() -> None:
    bench = Bench()
    honest = bench.offer(1)
    assert bench.hear(1, honest) == []
    assert [fact.reason for fact in bench.hear(1, honest)] == ["duplicate"]
    assert [fact.reason for fact in bench.hear(1, replace(honest, digest="0" * 64))] == ["conflict"]


def closed_bench() -> Bench:
    bench = Bench()
    for worker in (1, 2, 3):
        bench.hear(worker, bench.offer(worker))
    return bench


WRONG_READIES: dict[str, tuple[Callable[[Ready], Message], str]] = {
    "a stale digest of its own": (lambda ready: replace(ready, own_digest="0" * 64), "conflict"),
    "an attempt to come": (lambda ready: replace(ready, attempt=1), "late"),
    "another step": (lambda ready: replace(ready, step=7), "late"),
    "an old generation": (lambda ready: replace(ready, generation=0), "old generation"),
    "its offer again": (lambda ready: Offer(1, 1, ready.sample_ids, ready.own_digest, 15, True, 0.5), "duplicate"),
}


@pytest.mark.parametrize("name", WRONG_READIES)
def test_a_closed_step_is_committed_by_honest_readies_alone(name: str) -> None:
    lie, reason = WRONG_READIES[name]
    bench = closed_bench()
    for worker in (2, 3):
        assert bench.hear(worker, bench.ready(worker)) == []
    assert [fact.reason for fact in bench.hear(1, lie(bench.ready(1)))] == [reason]
    assert bench.told(Committed) == []
    assert bench.hear(1, bench.ready(1)) == []
    assert len(bench.told(Committed)) == 1


def test_what_an_old_incarnation_says_is_refused_and_it_is_told_so() -> None:
    bench = closed_bench()
    (refused,) = bench.hear(1, bench.ready(1), incarnation=77)
    assert (refused.reason, refused.incarnation) == ("old incarnation", 77)
    assert bench.last(1, Turned) == Turned(77, "incarnation 77 of worker-1 is over", fenced=True)


def test_a_checkpoint_of_another_state_is_not_published() -> None:
    bench = closed_bench()
    for worker in (1, 2, 3):
        bench.hear(worker, bench.ready(worker))
    bench.coordinator.config = replace(bench.config, checkpoint_every=1)
    for worker in (1, 2, 3):
        bench.hear(worker, bench.applied())
    asked = bench.last(1, SaveCheckpoint)
    published = len(bench.told(Published))
    lie = CheckpointSaved(asked.generation, 1, "ckpt-00000001-g1-i1", "0" * 64, "0" * 64)
    assert [fact.reason for fact in bench.hear(1, lie)] == ["digest"]
    assert len(bench.told(Published)) == published


def test_a_lie_about_the_sum_stops_the_run_and_says_who_holds_what() -> None:
    bench = closed_bench()
    for attempt in range(MISMATCHED_ATTEMPTS_MAX):
        for worker in (1, 2, 3):
            told = replace(bench.ready(worker), attempt=attempt, reduced_digest=("7" if worker == 3 else "r") * 64)
            assert bench.hear(worker, told) == []
    (finished,) = bench.told(Finished)
    assert finished.condition == "replicas disagree"
    assert "workers 1, 2 hold rrrrrrrrrrrr…; workers 3 hold 777777777777…" in finished.reason
    assert bench.told(Committed) == []


def test_whoever_alone_says_that_the_sum_is_not_finite_is_the_one_that_the_skip_names() -> None:
    bench = closed_bench()
    for worker in (1, 2, 3):
        assert bench.hear(worker, replace(bench.ready(worker), finite=worker != 3)) == []
    (committed,) = bench.told(Committed)
    assert (committed.skip, committed.offenders) == (True, (3,))


@pytest.mark.parametrize("loss", [math.nan, math.inf, -1e308])
def test_a_senseless_loss_hurts_nobody(loss: float) -> None:
    bench = Bench()
    for worker in (1, 2, 3):
        bench.hear(worker, replace(bench.offer(worker), loss=loss))
    for worker in (1, 2, 3):
        bench.hear(worker, bench.ready(worker))
    assert len(bench.told(Committed)) == 1


# ---------------------------------------------------------------- into the sum

SHARES = (Share(1, 1, 2), Share(2, 2, 2), Share(3, 3, 1))
ATTEMPT = Attempt(4, 7, 1, SHARES, 5, 10, 4)
GRADIENT = np.arange(10, dtype=np.float64)


def chain_part(**changes: Any) -> Part:
    return replace(Part(4, 7, 1, "chain", 1, 3, 4, 10, (1,), np.ones(4)), **changes)


WRONG_PARTS: dict[str, dict[str, Any]] = {
    "fewer chunks": {"count": 2},
    "another total": {"total": 12},
    "2^31 elements": {"total": 2**31},
    "a chunk that there is not": {"index": 3},
    "a chunk before the first": {"index": -1},
    "another place": {"start": 0},
    "more elements than the chunk has": {"data": np.ones(5)},
    "fewer elements than the chunk has": {"data": np.ones(3)},
    "no elements": {"data": np.ones(0)},
    "somebody counted twice": {"summed": (1, 1)},
    "nobody counted": {"summed": ()},
    "another order": {"summed": (2, 1)},
}


@pytest.mark.parametrize("name", WRONG_PARTS)
def test_a_part_that_does_not_fit_is_never_summed(name: str) -> None:
    ring = RingExchange(ATTEMPT, 2, GRADIENT)
    with pytest.raises(ContractBroken):
        list(ring.take(chain_part(**WRONG_PARTS[name])))
    (sent,) = list(ring.take(chain_part()))
    assert sent is not None
    expected = np.ones(4) + (2 / 5) * GRADIENT[4:8]
    assert sent[1].data.tobytes() == expected.tobytes()


@pytest.mark.parametrize("name", sorted(WRONG_PARTS.keys() - {"nobody counted"}))
def test_nor_by_the_server_or_from_it(name: str) -> None:
    changes = {"summed": (2,), **WRONG_PARTS[name]}
    with pytest.raises(ContractBroken):
        Gather(ATTEMPT).take(1, chain_part(lane="push", **{"summed": (1,), **WRONG_PARTS[name]}))
    with pytest.raises(ContractBroken):
        PushExchange(ATTEMPT, 2, GRADIENT).take(chain_part(lane="publish", **changes))


def test_a_repeated_push_with_other_bytes_changes_nothing() -> None:
    gather = Gather(Attempt(4, 7, 1, SHARES[:2], 4, 4, 4))
    first = Part(4, 7, 1, "push", 0, 1, 0, 4, (1,), np.ones(4))
    assert gather.take(1, first) is None
    assert gather.take(1, replace(first, data=np.full(4, 9.0))) is None
    done = gather.take(2, replace(first, summed=(2,)))
    assert done is not None
    assert done.data.tolist() == [2.0] * 4


def refusals(effects: list[Effect]) -> list[tuple[str, str]]:
    facts = [one.fact for one in effects if isinstance(one, Record) and isinstance(one.fact, Refused)]
    return [(fact.source, fact.reason) for fact in facts]


def test_the_server_takes_parts_of_contributors_only_and_closes_of_the_coordinator_only() -> None:
    bench = Bench()
    server = Server(1)
    server.handle(0.0, Received(COORDINATOR, 1, Welcome(1, 1, bench.config.to_json(), 0)))
    close = Close(1, 1, 0, (Share(1, 1, 2), Share(2, 2, 2)), 4, ())
    assert refusals(server.handle(0.0, Received("worker-3", 3, close))) == [("worker-3", "contract")]
    server.handle(0.0, Received(COORDINATOR, 1, close))
    push = Part(1, 1, 0, "push", 0, 1, 0, 15, (3,), np.ones(15))
    assert refusals(server.handle(0.0, Received("worker-3", 3, push))) == [("worker-3", "not a contributor")]
    in_anothers_name = replace(push, summed=(1,))
    assert refusals(server.handle(0.0, Received("worker-2", 2, in_anothers_name))) == [("worker-2", "contract")]
    old = replace(push, generation=0, summed=(1,))
    assert refusals(server.handle(0.0, Received("worker-1", 1, old))) == [("worker-1", "old generation")]


def test_a_worker_obeys_the_coordinator_only() -> None:
    worker = Worker(1, 1)
    worker.handle(0.0, Received(COORDINATOR, 1, Welcome(1, 1, Bench().config.to_json(), 0)))
    for message in (Commit(1, 1, 0, False, "d" * 64, "worker-2", ""), Finish(1, "finished"), EvidenceStored(99)):
        effects = worker.handle(0.0, Received("worker-2", 2, message))
        assert refusals(effects) == [("worker-2", "not the coordinator")]
        assert not any(isinstance(one, Send) for one in effects)


# ---------------------------------------------------------------- on the wire


def tensor(**changes: object) -> pb.Tensor:
    data = np.ones(4).tobytes()
    fields = {"dtype": "float64", "shape": [4], "crc32": zlib.crc32(data), "data": data, **changes}
    return pb.Tensor(**fields)  # type: ignore[arg-type]


WRONG_BYTES = {
    "a shape and bytes that disagree": (tensor(shape=[5]), "needs 40 bytes and has 32"),
    "2^31 x 2^31": (tensor(shape=[2**31, 2**31]), "2 dimensions"),
    "2^62 elements": (tensor(shape=[2**62]), "needs 36893488147419103232 bytes and has 32"),
    "2^63 elements": (tensor(shape=[2**63 - 1]), "and has 32"),
    "no shape": (tensor(shape=[]), "0 dimensions"),
    "float32": (tensor(dtype="float32"), "'float32'"),
    "objects": (tensor(dtype="object"), "'object'"),
    "a pickle for a type": (tensor(dtype=repr(pickle.dumps(print))), "only float64 is understood"),
    "another CRC": (tensor(crc32=7), "CRC"),
}


@pytest.mark.parametrize("name", WRONG_BYTES)
def test_an_array_that_is_none_is_refused_before_anything_is_allocated(name: str) -> None:
    told, why = WRONG_BYTES[name]
    part = pb.Part(generation=1, step=1, lane="chain", count=1, total=4, data=told)
    frame = pb.Frame(part=part).SerializeToString()
    tracemalloc.start()
    try:
        with pytest.raises(WireError, match=f"worker-3: .*{re.escape(why)}"):
            decode(frame, "worker-3")
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


class Bomb:
    """Whoever unpickles it raises a file."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def __reduce__(self) -> tuple[object, tuple[str]]:
        return Path.touch, (self.path,)  # type: ignore[return-value]


@pytest.mark.parametrize("protocol", range(pickle.HIGHEST_PROTOCOL + 1))
def test_kind_21_a_pickle_is_bytes_that_are_no_frame(protocol: int, tmp_path: Path) -> None:
    path = tmp_path / "exploded"
    payload = pickle.dumps(Bomb(path), protocol)
    for frame in (payload, pb.Frame(part=pb.Part(data=tensor(data=payload))).SerializeToString()):
        with pytest.raises(WireError):
            decode(frame, "worker-3")
    assert not path.exists()


# ---------------------------------------------------------------- in whole runs

LIES = sorted(name for name, plant in PLANTS.items() if plant.patches.__module__ == "testbed.plants.lies")


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("name", LIES)
def test_a_lie_that_nobody_can_see_is_caught_and_its_liar_named(name: str, strategy: str, tmp_path: Path) -> None:
    result = testbed.run("clean", strategy=strategy, plant=(name,), out=tmp_path / "run")
    first = result.document["invariants"][PLANTS[name].invariant]["first_violation"]
    assert result.verdict == "violated"
    assert (first["step"], first["role"]) == (4, "worker-3")


def test_there_are_lies() -> None:
    assert len(LIES) >= 6
