"""The verifier's own codec says the same bytes as training's, and its optimizer and delays the same numbers."""

from __future__ import annotations

from dataclasses import asdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from services.messages import Array
from services.shard_jobs import ShardState
from services.shards import bookkeeping, codec
from training.adamw import AdamWConfig
from training.boundary_codec.codec import decode, encode, encode_dense
from training.config import OptimizerConfig
from training.optimizers import OptimizerSettings, start, update
from training.shard_snapshot import ShardSnapshot
from training.staleness import DecayConfig, DelayConfig, decay_weight, delay_ticks
from training.tokens import batch_generator, draw_batch
from training.transformer.step import micro_batches

FINITE = st.floats(allow_nan=False, allow_infinity=False, width=64)
VALUES = arrays.arrays(np.float64, st.integers(0, 300), elements=FINITE | st.sampled_from([0.0, -0.0, 1.0, -1.0, 1e30]))


@given(values=VALUES, keep_percent=st.sampled_from([1, 10, 25, 50, 99, 100]), bits=st.sampled_from([4, 6, 8, 12]))
def test_the_codec_gives_the_same_bytes_and_values(values: Array, keep_percent: int, bits: int) -> None:
    payload = encode(values, keep_percent, bits)
    assert codec.encode(values, keep_percent, bits) == payload
    assert codec.decode(payload, values.size).tobytes() == decode(payload, values.size).tobytes()


@given(values=VALUES)
def test_dense_boundaries_are_the_same_bytes(values: Array) -> None:
    payload = encode_dense(values)
    assert codec.encode(values, 0, 0) == payload
    assert codec.decode(payload, values.size).tobytes() == values.tobytes()


@given(
    seed=st.integers(0, 2**63 - 1), step=st.integers(1, 10**6), micro_batch=st.integers(0, 99), cut=st.integers(1, 7),
    base=st.integers(0, 9), jitter=st.integers(0, 9), probability=st.sampled_from([0.0, 0.25, 0.5, 1.0]),
)  # fmt: skip
def test_delays_are_the_same(
    seed: int, step: int, micro_batch: int, cut: int, base: int, jitter: int, probability: float
) -> None:
    config = DelayConfig(base, jitter, probability)
    for way in ("forward", "backward"):
        drawn = delay_ticks(config, seed, step, micro_batch, cut, way)
        assert bookkeeping.delay(asdict(config), seed, step, micro_batch, cut, way) == drawn


@pytest.mark.parametrize("age", [0, 1, 2, 5, 50])
def test_weights_are_the_same(age: int) -> None:
    assert bookkeeping.weight(asdict(DecayConfig(0.5, 0.25)), age) == decay_weight(age, 0.5, 0.25)
    assert bookkeeping.weight(None, age) == 1.0


@given(batch=st.integers(1, 40), data=st.data())
def test_micro_batches_are_the_same(batch: int, data: st.DataObject) -> None:
    count = data.draw(st.integers(1, batch))
    assert tuple(bookkeeping.bounds(batch, count)) == micro_batches(batch, count)


def test_batches_are_the_same() -> None:
    tokens = np.arange(200, dtype=np.int64)
    own, generator = bookkeeping.Batches(7, 5, 12, tokens), batch_generator(7)
    for step in range(1, 6):
        batch, generator = draw_batch(tokens, 5, 12, generator)
        inputs, targets = own.at(step)
        assert (inputs.tolist(), targets.tolist()) == (batch.inputs.tolist(), batch.targets.tolist())


@pytest.mark.parametrize("settings", [AdamWConfig(), AdamWConfig(0.1, 0.0), OptimizerConfig(0.1, 0.9)])
def test_the_optimizer_is_replayed_bitwise(settings: OptimizerSettings) -> None:
    generator = np.random.default_rng(5)
    parameters = generator.normal(size=33)
    state, held = start(settings, 33), bookkeeping.start(asdict(settings), parameters)
    for step in range(1, 30):
        gradient = generator.normal(size=33) * 10.0 ** generator.integers(-8, 8)
        parameters, state = update(settings, parameters, state, gradient)
        held = bookkeeping.advance(asdict(settings), held, gradient)
        assert held.parameters.tobytes() == parameters.tobytes()
        shard = ShardState.of(ShardSnapshot(step, parameters, state, batch_generator(0)))
        assert held.digests == (shard.parameters_digest, shard.moments_digest)
