"""Layer-sharded runs in the simulator: equal to central training bitwise, whatever dies, waits or comes in disorder."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest

from services.host import Hold
from services.records import BoundarySent, BoundaryUsed, ShardsCommitted, ShardsRolledBack, Stale
from services.shard_config import Compression, Staleness
from tests.services.roles.shard_world import central, config, run
from training.config import OptimizerConfig
from training.shard_snapshot import folder_of, step_of
from training.staleness import DecayConfig, DelayConfig

PLAIN = config()
CENTRAL = central(PLAIN)
PHASES = [
    (shard, phase, chunk)
    for shard in (1, 2, 3)
    for phase, chunk in (
        ("open", 0), ("forward", 0), ("forward", 1), ("backward", 0), ("backward", 1), ("prepare", 0), ("prepared", 0),
        ("commit", 0), ("committed", 0),
    )
    if (shard, phase) not in ((1, "backward"), (3, "forward"))
]  # fmt: skip


@pytest.mark.parametrize("cuts", [(), (1,), (2,), (1, 2), (0, 3), (0, 1, 2, 3)])
@pytest.mark.parametrize("micro_batches", [1, 2, 3, 5])
def test_any_cut_trains_bitwise_like_the_central_model(cuts: tuple[int, ...], micro_batches: int) -> None:
    settings = config(cuts=cuts, micro_batches=micro_batches)
    outcome = run(settings)
    digests, loss = central(settings)
    assert outcome.digests == digests
    assert outcome.evaluations[settings.steps] == loss
    assert set(outcome.evaluations) == {0, 2, 4}


def test_momentum_sgd_trains_bitwise_like_the_central_model() -> None:
    settings = config(optimizer=OptimizerConfig(0.1, 0.9))
    assert run(settings).digests == central(settings)[0]


@pytest.mark.parametrize(("shard", "phase", "chunk"), PHASES)
def test_a_death_at_any_phase_of_any_shard_changes_no_bit(shard: int, phase: str, chunk: int) -> None:
    outcome = run(PLAIN, [Hold("k", f"shard-{shard}", 3, phase, chunk)])
    assert outcome.killed == [f"shard-{shard}"]
    assert (outcome.digests, outcome.evaluations[4]) == CENTRAL
    attempts = [fact.attempt for fact in outcome.of(ShardsCommitted) if fact.step == 3]
    assert attempts == ([0] if phase in ("commit", "committed") else [1])
    assert outcome.of(ShardsRolledBack) == []


@pytest.mark.parametrize("phase", ["opened", "decide", "tell"])
def test_a_death_of_the_coordinator_changes_no_bit(phase: str) -> None:
    outcome = run(PLAIN, [Hold("k", "coordinator", 3, phase)])
    assert outcome.killed == ["coordinator"]
    assert (outcome.digests, outcome.evaluations[4]) == CENTRAL


def test_kind_08_a_partial_commit_leaves_all_shards_at_the_committed_step() -> None:
    outcome = run(PLAIN, [Hold("a", "shard-1", 3, "commit"), Hold("b", "shard-2", 3, "committed")])
    assert sorted(outcome.killed) == ["shard-1", "shard-2"]
    assert (outcome.digests, outcome.evaluations[4]) == CENTRAL


def test_with_snapshots_further_apart_all_go_back_to_the_last_one_that_all_hold() -> None:
    settings = config(checkpoint_every=2)
    outcome = run(settings, [Hold("k", "shard-2", 3, "committed")])
    assert [fact.to_step for fact in outcome.of(ShardsRolledBack)] == [2]
    assert (outcome.digests, outcome.evaluations[4]) == CENTRAL


@pytest.mark.parametrize(
    "delay", [DelayConfig(1), DelayConfig(2), DelayConfig(1, 1, 0.5)], ids=["1 tick", "2 ticks", "jitter and reorder"]
)
def test_within_the_bound_delay_and_disorder_change_no_bit(delay: DelayConfig) -> None:
    settings = config(staleness=Staleness(max_staleness=delay.longest_ticks, delay=delay), micro_batches=5)
    outcome = run(settings)
    assert (outcome.digests, outcome.evaluations[4]) == central(settings)
    ages = {fact.age for fact in outcome.of(BoundaryUsed)}
    assert max(ages) >= 1
    assert ages == {fact.age for fact in outcome.of(BoundarySent)}


def test_an_older_boundary_stops_the_run_at_once_and_nothing_is_committed() -> None:
    outcome = run(config(staleness=Staleness(max_staleness=0, delay=DelayConfig(1))))
    assert outcome.stop is not None
    assert outcome.stop.condition == "stale boundary"
    assert "age 1; max_staleness is 0" in outcome.stop.reason
    assert len(outcome.of(Stale)) == 1
    assert outcome.of(ShardsCommitted) == []


def test_decay_scales_by_age_and_moves_the_loss() -> None:
    staleness = Staleness(max_staleness=2, delay=DelayConfig(1), decay=DecayConfig(0.5, 0.25))
    first, again = run(config(staleness=staleness)), run(config(staleness=staleness))
    assert {round(fact.weight, 6) for fact in first.of(BoundaryUsed)} == {0.606531}
    assert first.digests == again.digests != CENTRAL[0]


def test_measured_ages_are_what_boundaries_took_and_the_sender_does_not_wait() -> None:
    settings = config(staleness=Staleness(tick_ms=0.05, max_staleness=9, age="measured"))
    outcome = run(settings)  # the simulated network takes 0.2 to 0.3 ms, and 1 ns a byte
    assert {4, 5} <= {fact.age for fact in outcome.of(BoundaryUsed)} <= {4, 5, 6}
    assert {fact.age for fact in outcome.of(BoundarySent)} == {0}
    assert (outcome.digests, outcome.evaluations[4]) == CENTRAL  # decay is off, so age changes nothing
    decayed = run(config(staleness=replace(settings.staleness, decay=DecayConfig(0.3, 0.25))))
    weights = {4: math.exp(-0.3 * 4), 5: 0.25, 6: 0.25}
    assert all(fact.weight == weights[fact.age] for fact in decayed.of(BoundaryUsed))
    assert decayed.digests != CENTRAL[0]


def test_a_boundary_that_was_measured_too_old_stops_the_run() -> None:
    outcome = run(config(staleness=Staleness(tick_ms=0.1, max_staleness=1, age="measured")))
    assert outcome.stop is not None
    assert outcome.stop.condition == "stale boundary"
    assert outcome.of(ShardsCommitted) == []


def test_compression_moves_the_loss_and_reports_the_payload_as_received() -> None:
    outcome = run(config(compression=Compression(50, 6)))
    sent = {(f.step, f.attempt, f.micro_batch, f.cut, f.direction): f for f in outcome.of(BoundarySent)}
    used = {(f.step, f.attempt, f.micro_batch, f.cut, f.direction): f for f in outcome.of(BoundaryUsed)}
    assert sent.keys() == used.keys()
    assert all(sent[key].payload_sha256 == used[key].payload_sha256 for key in sent)
    assert all(sent[key].payload_bytes == used[key].payload_bytes for key in sent)
    smaller = {key[-1] for key in sent if sent[key].payload_bytes < sent[key].dense.nbytes}
    assert smaller == {"forward"}  # gradients pass the codec as if it were not there
    assert outcome.digests != CENTRAL[0]


def test_every_boundary_is_used_once_in_ascending_micro_batch() -> None:
    settings = config(micro_batches=5, staleness=Staleness(max_staleness=9, delay=DelayConfig(1, 1, 0.5)))
    outcome = run(settings)
    for shard in (1, 2, 3):
        for direction in ("forward", "backward"):
            used = [
                (fact.step, fact.micro_batch)
                for name, fact in outcome.facts
                if isinstance(fact, BoundaryUsed) and name == f"shard-{shard}" and fact.direction == direction
            ]
            assert used == sorted(set(used))


def test_old_files_go_and_those_that_may_be_needed_stay() -> None:
    settings = config(steps=6, evaluate_every=6, checkpoint_keep=2)
    outcome = run(settings, [Hold("k", "shard-2", 5, "committed")])
    assert outcome.digests == central(settings)[0]
    for shard in (1, 2, 3):
        steps = {step_of(name) for name in outcome.disk.list(folder_of(shard))}
        assert {5, 6} <= steps <= {4, 5, 6}
