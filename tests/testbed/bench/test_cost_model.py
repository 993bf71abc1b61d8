"""The cost model against formulas worked out by hand, and its counts against the definition of each exchange."""

from __future__ import annotations

import pytest

from services.codec import encode
from services.messages import Part
from testbed.bench.all_reduce import moved_bytes
from testbed.bench.cost_model import Network, model_ring, model_server

NETWORK = Network(latency_us=50.0, bytes_per_us=1000.0)
ELEMENTS = 12_000  # 96 kB in one chunk


def encoded_bytes(lane: str, summed: tuple[int, ...], elements: int = ELEMENTS) -> int:
    import numpy as np

    return len(encode(Part(1, 1, 0, lane, 0, 1, 0, elements, summed, np.zeros(elements))))


@pytest.mark.parametrize("workers", [2, 4, 7])
def test_ring_of_one_chunk_is_a_chain_of_hops(workers: int) -> None:
    found = model_ring(NETWORK, workers, ELEMENTS, ELEMENTS)
    orders = [tuple(range(1, count + 1)) for count in range(1, workers)]
    chain = [encoded_bytes("chain", order) for order in orders]
    lap = [encoded_bytes("lap", tuple(range(1, workers + 1)))] * (workers - 1)
    assert found.messages == 2 * (workers - 1)
    assert found.moved_bytes == sum(chain) + sum(lap)
    assert found.time_us == pytest.approx(sum(50.0 + size / 1000.0 for size in chain + lap))


@pytest.mark.parametrize("workers", [2, 4])
def test_server_of_one_chunk_takes_in_and_gives_out_one_by_one(workers: int) -> None:
    found = model_server(NETWORK, workers, ELEMENTS, ELEMENTS)
    push = encoded_bytes("push", (1,))
    publish = encoded_bytes("publish", tuple(range(1, workers + 1)))
    assert found.messages == 2 * workers
    assert found.moved_bytes == workers * (push + publish)
    assert found.time_us == pytest.approx(50.0 + workers * push / 1000.0 + 50.0 + workers * publish / 1000.0)


def test_chunks_travel_at_the_same_time() -> None:
    whole = model_ring(NETWORK, 4, ELEMENTS, ELEMENTS)
    cut = model_ring(NETWORK, 4, ELEMENTS, ELEMENTS // 8)
    assert cut.messages == 8 * whole.messages
    assert cut.time_us < whole.time_us


def test_a_longer_line_costs_the_ring_more_than_the_server() -> None:
    far = Network(latency_us=5000.0, bytes_per_us=1000.0)
    assert model_ring(far, 4, 36, 36).time_us > model_server(far, 4, 36, 36).time_us
    wide = model_ring(NETWORK, 8, 8 * ELEMENTS, ELEMENTS), model_server(NETWORK, 8, 8 * ELEMENTS, ELEMENTS)
    assert wide[0].time_us < wide[1].time_us


def test_moved_bytes() -> None:
    assert moved_bytes("ring", 4, 100) == 600
    assert moved_bytes("ps", 4, 100) == 800
    assert moved_bytes("ring", 2, 8) == 16
