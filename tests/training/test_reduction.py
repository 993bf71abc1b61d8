"""The weighted sum: exact weights, one order, refusals before anything is summed, exact chunks."""

from __future__ import annotations

import itertools
import math
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.config import ModelConfig
from training.errors import ContractError
from training.models import initial_parameters, loss_and_gradient
from training.reduction import add_in_order, chunk_bounds, reduce_in_order, scaled


def test_kind_01_one_seven_and_thirty_two_samples_equal_the_full_batch() -> None:
    config = ModelConfig("mlp", 8, 4, 16)
    generator = np.random.default_rng(0)
    features, labels = generator.normal(size=(40, 8)), generator.integers(0, 4, 40)
    parameters = initial_parameters(config, 0)
    bounds = {3: (0, 1), 1: (1, 8), 2: (8, 40)}
    parts = [
        (worker, stop - start, loss_and_gradient(config, parameters, features[start:stop], labels[start:stop])[1])
        for worker, (start, stop) in bounds.items()
    ]
    whole = loss_and_gradient(config, parameters, features, labels)[1]
    assert np.abs(reduce_in_order(parts) - whole).max() < 1e-12
    mean_of_means = sum(gradient for _, _, gradient in parts) / 3
    assert np.abs(mean_of_means - whole).max() > 1e-3  # the bug that this test is there to see


def test_the_arithmetic_is_the_documented_one() -> None:
    generator = np.random.default_rng(1)
    arrays = [generator.normal(size=11) for _ in range(3)]
    expected = (2 / 10) * arrays[0]
    expected = expected + (3 / 10) * arrays[1]
    expected = expected + (5 / 10) * arrays[2]
    assert reduce_in_order([(9, 5, arrays[2]), (1, 2, arrays[0]), (4, 3, arrays[1])]).tobytes() == expected.tobytes()


def test_kind_02_no_contribution_and_no_samples_are_refused_by_name() -> None:
    with pytest.raises(ContractError, match="no contribution"):
        reduce_in_order([])
    with pytest.raises(ContractError, match="0 samples"):
        reduce_in_order([(1, 0, np.zeros(3))])
    with pytest.raises(ContractError, match="0 samples"):
        reduce_in_order([(1, 4, np.zeros(3)), (2, 0, np.zeros(3))])
    with pytest.raises(ContractError):
        scaled(np.zeros(3), 5, 4)


def test_a_worker_counts_once() -> None:
    with pytest.raises(ContractError, match="worker 2 contributes twice"):
        reduce_in_order([(2, 1, np.ones(2)), (1, 1, np.ones(2)), (2, 1, np.ones(2))])


@pytest.mark.parametrize(
    "other",
    [np.zeros(409598), np.zeros(409600, dtype=np.float32), np.zeros((409600, 1)), np.zeros(409600, dtype=np.int64)],
)
def test_kind_10_mismatch_is_refused_before_the_sum(other: np.ndarray) -> None:
    first = np.zeros(409600)
    with pytest.raises(ContractError):
        reduce_in_order([(1, 3, first), (2, 3, other)])
    with pytest.raises(ContractError):
        add_in_order(first, other)


@pytest.mark.parametrize("workers", [2, 3, 4, 7])
@pytest.mark.parametrize("offset", ["none", "one", "below", "equal", "above", "prime"])
def test_kind_10_uneven_chunks_are_exact(workers: int, offset: str) -> None:
    length = {"none": 0, "one": 1, "below": workers - 1, "equal": workers, "above": workers + 1, "prime": 1009}[offset]
    generator = np.random.default_rng(length)
    parts = [(worker, worker, generator.normal(size=length)) for worker in range(1, workers + 1)]
    whole = reduce_in_order(parts)
    bounds = chunk_bounds(length, max(1, math.ceil(length / workers)))
    chunked = [reduce_in_order([(worker, n, part[start:stop]) for worker, n, part in parts]) for start, stop in bounds]
    assert np.concatenate([np.zeros(0), *chunked]).tobytes() == whole.tobytes()


@given(st.integers(0, 2000), st.integers(1, 300))
def test_kind_10_chunks_cover_every_element_once(elements: int, size: int) -> None:
    bounds = chunk_bounds(elements, size)
    assert [index for start, stop in bounds for index in range(start, stop)] == list(range(elements))
    assert all(stop - start == size for start, stop in bounds[:-1])
    assert len(bounds) == math.ceil(elements / size)


def test_chunks_of_nonsense_are_refused() -> None:
    for elements, size in ((-1, 4), (4, 0), (4, -1)):
        with pytest.raises(ContractError):
            chunk_bounds(elements, size)


def test_kind_22_any_order_of_arrival_gives_the_same_bits() -> None:
    parts = [(worker, 1, np.array([value])) for worker, value in enumerate([1e8, 1.0, -1e8, 1.0], start=1)]
    results = {reduce_in_order(list(order)).tobytes() for order in itertools.permutations(parts)}
    assert len(results) == 1
    worker_order = np.array([((0.25 * 1e8 + 0.25) + 0.25 * -1e8) + 0.25])
    assert results == {worker_order.tobytes()}


def test_kind_22_negative_zero_survives() -> None:
    result = reduce_in_order([(1, 1, np.array([-0.0])), (2, 1, np.array([-0.0]))])
    assert np.signbit(result[0])
    assert np.signbit(reduce_in_order([(1, 1, np.array([-0.0]))])[0])


def test_kind_09_overflow_only_in_the_sum_is_silent_and_infinite() -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        huge = np.array([1.7e308])
        assert np.isinf(add_in_order(huge, huge))[0]
        assert np.isnan(reduce_in_order([(1, 1, np.array([math.inf])), (2, 1, np.array([-math.inf]))]))[0]
