"""Any cut computes the bits of the uncut model; the cuts themselves; parameters split, merged and seeded."""

from __future__ import annotations

import functools
import itertools
from typing import Any

import numpy as np
import pytest

from tests.training.transformer.simulated import Boundaries, Run, gradients, train
from training.adamw import AdamWConfig
from training.config import OptimizerConfig
from training.errors import ConfigurationError, ContractError
from training.optimizers import OptimizerSettings
from training.staleness import DelayConfig
from training.synthetic_language import synthetic_corpus
from training.transformer.config import TransformerConfig
from training.transformer.initial import initial_parameters
from training.transformer.layout import block_shapes, element_count, embedding_shapes, head_shapes
from training.transformer.shard import shard_forward
from training.transformer.sharding import ShardSpec, cut, even_cuts, merge_parameters, split_parameters
from training.transformer.step import central_gradient, micro_batches

SMALL = TransformerConfig(9, block_count=4, width=8, head_count=2, mlp_width=12, context=6)
CORPUS = synthetic_corpus(3, vocabulary_size=9, train_tokens=400, evaluation_tokens=100)
CUTS = [cuts for count in range(6) for cuts in itertools.combinations(range(5), count)]
OPTIMIZERS: tuple[OptimizerSettings, ...] = (AdamWConfig(), OptimizerConfig(0.1, 0.9))


@functools.cache
def trained_centrally(settings: OptimizerSettings) -> Run:
    return train(cut(SMALL), CORPUS, settings, 50, batch_size=3, micro_batch_count=2)


def test_every_number_of_shards_is_covered() -> None:
    assert {len(cuts) + 1 for cuts in CUTS} == {1, 2, 3, 4, 5, 6}
    assert len(CUTS) == 32


@pytest.mark.parametrize("cuts", CUTS, ids=str)
def test_forward_logits_and_fifty_steps_equal_the_central_model(cuts: tuple[int, ...]) -> None:
    settings = OPTIMIZERS[len(cuts) % 2]
    specs = cut(SMALL, cuts)
    (central,) = cut(SMALL)
    whole = initial_parameters(central, 5)
    values = np.random.default_rng(0).integers(0, 9, size=(3, 6))
    expected, _ = shard_forward(central, whole, values)
    for spec, own in zip(specs, split_parameters(specs, whole), strict=True):
        values, _ = shard_forward(spec, own, values)  # type: ignore[assignment]
    assert values.tobytes() == expected.tobytes()

    reference = trained_centrally(settings)
    run = train(specs, CORPUS, settings, 50, batch_size=3, micro_batch_count=2)
    assert run.merged.tobytes() == reference.merged.tobytes()
    assert (run.curve, run.losses) == (reference.curve, reference.losses)
    for index in range(len(run.states[0].moments)):
        merged = merge_parameters(specs, [state.moments[index] for state in run.states])
        assert merged.tobytes() == reference.states[0].moments[index].tobytes()


@pytest.mark.parametrize(("cuts", "micro_batch_count"), [((2, 4), 1), ((0, 3, 6), 3)])
def test_the_default_model_too(cuts: tuple[int, ...], micro_batch_count: int) -> None:
    config = TransformerConfig(37)
    (central,) = cut(config)
    specs = cut(config, cuts)
    whole = initial_parameters(central, 1)
    tokens = np.random.default_rng(1).integers(0, 37, size=(8, 65))
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    loss, expected = central_gradient(central, whole, inputs, targets, micro_batch_count)
    parts = split_parameters(specs, whole)
    found_loss, found = gradients(specs, parts, (inputs, targets), micro_batch_count)
    assert found_loss == loss
    assert merge_parameters(specs, found).tobytes() == expected.tobytes()


def test_delay_without_decay_changes_nothing() -> None:
    reference = trained_centrally(OPTIMIZERS[0])
    boundaries = Boundaries(delay=DelayConfig(1, 1, 0.5))
    run = train(cut(SMALL, (1, 2)), CORPUS, OPTIMIZERS[0], 50, boundaries, batch_size=3, micro_batch_count=2)
    assert run.curve == reference.curve


def test_where_the_layers_stand() -> None:
    specs = cut(SMALL, (0, 3, 4))
    assert [(spec.first_block, spec.stop_block) for spec in specs] == [(0, 0), (0, 3), (3, 4), (4, 4)]
    assert [spec.has_embedding for spec in specs] == [True, False, False, False]
    assert [spec.has_head for spec in specs] == [False, False, False, True]
    block, embedding, head = (element_count(shapes(SMALL)) for shapes in (block_shapes, embedding_shapes, head_shapes))
    assert (embedding, head) == (9 * 8 + 6 * 8, 8 + 8 + 8 * 9)
    assert block == 4 * 8 + 8 * 24 + 24 + 8 * 8 + 8 + 8 * 12 + 12 + 12 * 8 + 8
    assert [spec.parameter_count for spec in specs] == [embedding, 3 * block, block, head]


def test_impossible_cuts_are_refused() -> None:
    bad_cuts: tuple[tuple[object, ...], ...] = ((-1,), (5,), (2, 2), (3, 1), (0, 0), (4, 4), (1.0,), (True,), ("1",))
    for cuts in bad_cuts:
        with pytest.raises(ConfigurationError, match=r"cuts .* of 4 blocks"):
            cut(SMALL, cuts)  # type: ignore[arg-type]
    deep = TransformerConfig(9, block_count=9)
    assert len(cut(deep, range(7))) == 8
    with pytest.raises(ConfigurationError, match="at most 8"):
        cut(deep, range(8))


def test_even_cuts() -> None:
    assert [even_cuts(6, count) for count in (1, 2, 3, 4)] == [(), (3,), (2, 4), (2, 4, 5)]
    assert even_cuts(4, 5) == (1, 2, 3, 4)
    assert even_cuts(4, 6) == (0, 1, 2, 3, 4)
    for blocks, shards in itertools.product(range(1, 10), range(1, 9)):
        if shards <= blocks + 2:
            assert len(cut(TransformerConfig(9, block_count=blocks), even_cuts(blocks, shards))) == shards
    for blocks, shards in ((4, 7), (4, 0), (9, 9)):
        with pytest.raises(ConfigurationError, match="cannot cut"):
            even_cuts(blocks, shards)


@pytest.mark.parametrize("cuts", [(), (2,), (0, 1, 2, 3, 4)])
def test_split_and_merge_keep_every_bit(cuts: tuple[int, ...]) -> None:
    specs = cut(SMALL, cuts)
    central = np.random.default_rng(0).normal(size=cut(SMALL)[0].parameter_count)
    central[:3] = (np.nan, -0.0, np.inf)
    parts = split_parameters(specs, central)
    assert merge_parameters(specs, parts).tobytes() == central.tobytes()
    assert not any(np.shares_memory(part, central) for part in parts)


def test_parts_that_do_not_fit_are_refused() -> None:
    specs = cut(SMALL, (2,))
    parts = [np.zeros(spec.parameter_count) for spec in specs]
    single: Any = parts[0].astype(np.float32)
    for bad in (parts[:1], [*parts, parts[0]], parts[::-1], [single, parts[1]]):
        with pytest.raises(ContractError):
            merge_parameters(specs, bad)
    wholes: list[Any] = [np.zeros(3), np.zeros(sum(map(len, parts)), dtype=np.float32)]
    for whole in wholes:
        with pytest.raises(ContractError):
            split_parameters(specs, whole)


def test_initial_parameters_do_not_depend_on_the_cut() -> None:
    def start(specs: tuple[ShardSpec, ...], seed: int) -> bytes:
        return merge_parameters(specs, [initial_parameters(spec, seed) for spec in specs]).tobytes()

    expected = start(cut(SMALL), 7)
    assert all(start(cut(SMALL, cuts), 7) == expected for cuts in CUTS)
    assert start(cut(SMALL), 8) != expected
    with pytest.raises(ConfigurationError, match="seed"):
        initial_parameters(cut(SMALL)[0], -1)


def test_micro_batches() -> None:
    assert micro_batches(8, 3) == ((0, 3), (3, 6), (6, 8))
    assert micro_batches(4, 4) == ((0, 1), (1, 2), (2, 3), (3, 4))
    for batch, count in ((4, 0), (4, 5), (0, 1)):
        with pytest.raises(ConfigurationError, match="micro-batches"):
            micro_batches(batch, count)


def test_kind_01_unequal_micro_batches_weigh_by_size() -> None:
    (spec,) = cut(SMALL)
    parameters = initial_parameters(spec, 2)
    tokens = np.random.default_rng(2).integers(0, 9, size=(7, 7))
    whole = central_gradient(spec, parameters, tokens[:, :-1], tokens[:, 1:], 1)
    for count in range(2, 8):
        loss, gradient = central_gradient(spec, parameters, tokens[:, :-1], tokens[:, 1:], count)
        assert loss == pytest.approx(whole[0], rel=1e-13)
        np.testing.assert_allclose(gradient, whole[1], rtol=0, atol=1e-12)
