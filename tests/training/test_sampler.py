"""Deals are disjoint and cover what remains; a finished epoch committed each id exactly once."""

from __future__ import annotations

import json
import tracemalloc
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config import BatchConfig
from training.errors import ConfigurationError, ContractError, DataError
from training.sampler import Sampler, SamplerState

ONE_EACH = BatchConfig("per_worker", 1)


def ids_of(deal: dict[int, tuple[int, ...]]) -> list[int]:
    return [sample for ids in deal.values() for sample in ids]


def step(sampler: Sampler, members: tuple[int, ...], batch: BatchConfig) -> list[int]:
    ids = ids_of(sampler.deal(members, batch))
    sampler.commit(ids)
    return ids


def test_one_generator_is_carried_through_the_epochs() -> None:
    generator = np.random.Generator(np.random.PCG64(11))
    sampler = Sampler(10, 11)
    for epoch in range(4):
        assert sampler.epoch == epoch
        assert sampler.remaining() == tuple(generator.permutation(10).tolist())
        sampler.commit(sampler.remaining())


def test_the_deal_is_the_documented_stride() -> None:
    sampler = Sampler(23, 0)
    sampler.commit(sampler.remaining()[2:7])
    remaining = sampler.remaining()
    per_worker = sampler.deal((2, 5, 9), BatchConfig("per_worker", 4))
    assert per_worker == {worker: remaining[j::3][:4] for j, worker in enumerate((2, 5, 9))}
    whole = sampler.deal((2, 5, 9), BatchConfig("global", 10))
    assert whole == {worker: remaining[:10][j::3] for j, worker in enumerate((2, 5, 9))}
    assert [len(ids) for ids in whole.values()] == [4, 3, 3]


def test_a_deal_changes_nothing() -> None:
    sampler = Sampler(9, 1)
    first = sampler.deal((1, 2), ONE_EACH)
    assert sampler.deal((1, 2), ONE_EACH) == first
    assert sampler.remaining_count == 9


@pytest.mark.parametrize(("samples", "workers"), [(10, 3), (21, 2), (3, 7), (4, 9)])
@pytest.mark.parametrize("size", [1, 2, 5])
@pytest.mark.parametrize("mode", ["per_worker", "global"])
def test_kind_03_each_id_once_whatever_the_division(samples: int, workers: int, size: int, mode: str) -> None:
    sampler = Sampler(samples, 3)
    batch = BatchConfig("per_worker" if mode == "per_worker" else "global", size)
    members = tuple(range(1, workers + 1))
    for epoch in range(3):
        seen: list[int] = []
        while sampler.epoch == epoch:
            deal = sampler.deal(members, batch)
            assert tuple(deal) == members  # an idle worker is dealt nothing, but it is told so
            assert 1 <= len(ids_of(deal)) <= (size * workers if mode == "per_worker" else size)
            seen += ids_of(deal)
            sampler.commit(ids_of(deal))
        assert sorted(seen) == list(range(samples))


def test_kind_03_no_samples_is_a_configuration_error() -> None:
    with pytest.raises(ConfigurationError, match="0 samples"):
        Sampler(0, 1)
    with pytest.raises(ConfigurationError, match="seed"):
        Sampler(3, -1)


def test_kind_02_an_empty_commit_changes_nothing() -> None:
    sampler = Sampler(5, 0)
    before = sampler.state()
    sampler.commit(())
    assert sampler.state() == before


def test_kind_04_a_dead_workers_samples_are_dealt_again_at_every_step() -> None:
    for death in range(7):
        sampler, seen, number = Sampler(100, 2), list[int](), 0
        members: tuple[int, ...] = (1, 2, 3, 4)
        while sampler.epoch == 0:
            deal = sampler.deal(members, BatchConfig("per_worker", 5))
            if number == death:
                lost = deal.pop(3)
                members = (1, 2, 4)
                assert not set(lost) & set(ids_of(deal))
            seen += ids_of(deal)
            sampler.commit(ids_of(deal))
            number += 1
        assert sorted(seen) == list(range(100))


def test_kind_05_the_global_batch_does_not_depend_on_the_members() -> None:
    samplers = [Sampler(50, 4) for _ in range(2)]
    batch = BatchConfig("global", 12)
    for members in ((1, 2, 3), (1, 3), (1, 3, 4), (4,)):
        taken = [set(step(samplers[0], members, batch)), set(step(samplers[1], (1,), batch))]
        assert taken[0] == taken[1]
        assert len(taken[0]) == 12
    assert len(step(samplers[0], (1, 3, 4), batch)) == 2  # the epoch's short batch


def test_a_step_never_crosses_an_epoch() -> None:
    sampler = Sampler(7, 0)
    sizes = [len(step(sampler, (1, 2), BatchConfig("per_worker", 2))) for _ in range(4)]
    assert sizes == [4, 3, 4, 3]
    assert sampler.epoch == 2


@pytest.mark.parametrize("ids", [(99,), (-1,), (1, 1), (3, 10)])
def test_a_commit_of_something_else_is_refused_and_changes_nothing(ids: tuple[int, ...]) -> None:
    sampler = Sampler(10, 6)
    sampler.commit(sampler.remaining()[3:5])
    before = sampler.state()
    with pytest.raises(ContractError, match="nothing was committed"):
        sampler.commit(ids)
    assert sampler.state() == before
    with pytest.raises(ContractError, match="not among those remaining"):
        sampler.commit(before.committed[:1])
    assert sampler.state() == before


@pytest.mark.parametrize("members", [(), (2, 1), (1, 1)])
def test_members_must_be_ascending_and_distinct(members: tuple[int, ...]) -> None:
    with pytest.raises(ContractError, match="ascending"):
        Sampler(3, 0).deal(members, ONE_EACH)


def test_restored_in_mid_epoch_it_continues_identically() -> None:
    original = Sampler(37, 8)
    batch = BatchConfig("per_worker", 3)
    for _ in range(6):
        step(original, (1, 2, 3), batch)
    original.commit(original.deal((1, 2, 3), batch)[2])  # a gap among the committed ones
    saved = json.loads(json.dumps(original.state().to_json()))
    restored = Sampler.restore(SamplerState.from_json(saved))
    assert restored.remaining() == original.remaining()
    for _ in range(40):
        assert restored.deal((1, 4), batch) == original.deal((1, 4), batch)
        assert step(restored, (1, 4), batch) == step(original, (1, 4), batch)
        assert restored.state() == original.state()


def test_a_state_that_contradicts_itself_is_refused() -> None:
    sampler = Sampler(10, 8)
    step(sampler, (1,), BatchConfig("global", 4))
    state = sampler.state()
    lost = replace(state, generator=replace(state.generator, state=state.generator.state ^ 1))
    for bad in (
        lost,
        replace(state, generator_at_epoch=state.generator),
        replace(state, committed=(*state.committed, 99)),
        replace(state, committed=tuple(range(10))),
        replace(state, committed=(state.committed[0], state.committed[0])),
        replace(state, sample_count=0),
        replace(state, sample_count=11, committed=()),
        replace(state, epoch=-1),
        replace(state, generator_at_epoch=replace(state.generator_at_epoch, state=1 << 200)),
    ):
        with pytest.raises(DataError, match="damaged sampler state"):
            Sampler.restore(bad)


@pytest.mark.parametrize("field", ["sample_count", "seed", "epoch", "committed", "generator", "generator_at_epoch"])
def test_json_that_is_no_state_is_refused(field: str) -> None:
    good = Sampler(3, 1).state().to_json()
    for bad in ({key: value for key, value in good.items() if key != field}, {**good, field: "x"}):
        with pytest.raises(DataError, match="no sampler state"):
            SamplerState.from_json(bad)


def test_deal_and_commit_touch_the_batch_only() -> None:
    sampler = Sampler(1_000_000, 0)
    members, batch = (1, 2, 3, 4), BatchConfig("per_worker", 32)
    tracemalloc.start()
    try:
        for _ in range(50):
            step(sampler, members, batch)
            sampler.commit(sampler.deal(members, batch)[2])  # three of four are lost
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert peak_bytes < 200_000


@given(st.data())
def test_kind_04_random_deaths_and_rejoins_commit_each_id_once_per_epoch(data: st.DataObject) -> None:
    samples = data.draw(st.integers(1, 40), "samples")
    mode = data.draw(st.sampled_from(["per_worker", "global"]), "mode")
    batch = BatchConfig("per_worker" if mode == "per_worker" else "global", data.draw(st.integers(1, 9), "size"))
    sampler = Sampler(samples, data.draw(st.integers(0, 99), "seed"))
    epoch, committed = 0, list[int]()
    order = list(sampler.remaining())
    for _ in range(data.draw(st.integers(1, 25), "steps")):
        members = tuple(sorted(data.draw(st.sets(st.integers(1, 9), min_size=1, max_size=6), "members")))
        deal = sampler.deal(members, batch)
        remaining = [sample for sample in order if sample not in committed]  # the naive model
        take = remaining[: batch.size] if mode == "global" else remaining[: batch.size * len(members)]
        assert deal == {worker: tuple(take[j :: len(members)]) for j, worker in enumerate(members)}
        survivors = data.draw(st.sets(st.sampled_from(members)), "survivors")
        ids = [sample for worker in sorted(survivors) for sample in deal[worker]]
        sampler.commit(ids)
        committed += ids
        if data.draw(st.booleans(), "reload"):
            sampler = Sampler.restore(SamplerState.from_json(sampler.state().to_json()))
        if sampler.epoch != epoch:
            assert sorted(committed) == list(range(samples))
            epoch, committed, order = epoch + 1, [], list(sampler.remaining())
        assert sampler.epoch == epoch
        assert sampler.remaining_count == samples - len(committed)
        assert sampler.state().committed == tuple(sorted(committed))
