"""One attempt at a step, part by part: ring and server give the bits of a left-to-right sum, whatever comes when."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from services.exchange import Attempt, ContractBroken, Gather, PushExchange, RingExchange
from services.messages import Array, Part, Share
from training.reduction import reduce_in_order

Gradients = dict[int, Array]


def make(workers: tuple[int, ...], elements: int, seed: int = 0) -> tuple[Gradients, dict[int, int]]:
    generator = np.random.default_rng(seed)
    gradients = {worker: generator.normal(size=elements) * 10.0 ** generator.integers(-3, 4) for worker in workers}
    return gradients, {worker: int(generator.integers(1, 40)) for worker in workers}


def attempt_of(counts: dict[int, int], elements: int, chunk: int) -> Attempt:
    shares = tuple(Share(worker, 1, counts[worker]) for worker in sorted(counts))
    return Attempt(1, 1, 0, shares, sum(counts.values()), elements, chunk)


def run_ring(gradients: Gradients, counts: dict[int, int], chunk: int, order_seed: int) -> dict[int, RingExchange]:
    """All contributors, with parts delivered in a seeded order."""
    elements = next(iter(gradients.values())).size
    attempt = attempt_of(counts, elements, chunk)
    rings = {worker: RingExchange(attempt, worker, gradients[worker]) for worker in gradients}
    generator = np.random.default_rng(order_seed)
    flying: list[tuple[int, Part]] = [send for ring in rings.values() for send in ring.begin() if send is not None]
    while flying:
        receiver, part = flying.pop(int(generator.integers(len(flying))))
        flying += [send for send in rings[receiver].take(part) if send is not None]
    return rings


def run_server(gradients: Gradients, counts: dict[int, int], chunk: int, order_seed: int) -> dict[int, PushExchange]:
    elements = next(iter(gradients.values())).size
    attempt = attempt_of(counts, elements, chunk)
    pushes = {worker: PushExchange(attempt, worker, gradients[worker]) for worker in gradients}
    parts = [(worker, part) for worker, push in pushes.items() for part in push.begin()]
    np.random.default_rng(order_seed).shuffle(parts)
    gather = Gather(attempt)
    for worker, part in parts:
        done = gather.take(worker, part)
        if done is not None:
            for push in pushes.values():
                push.take(done)
    return pushes


@pytest.mark.parametrize("elements", [1, 2, 3, 4, 5, 7, 36, 97])
@pytest.mark.parametrize("workers", [(1,), (1, 2), (2, 5, 9), (1, 2, 3, 4)])
def test_kind_10_ring_and_server_equal_the_left_to_right_sum(workers: tuple[int, ...], elements: int) -> None:
    gradients, counts = make(workers, elements)
    expected = reduce_in_order([(worker, counts[worker], gradients[worker]) for worker in workers])
    for chunk, seed in itertools.product((1, 2, 3, 5, 1000), (0, 1)):
        for exchanges in (run_ring(gradients, counts, chunk, seed), run_server(gradients, counts, chunk, seed)):
            for exchange in exchanges.values():
                assert exchange.finished.complete
                assert exchange.finished.value.tobytes() == expected.tobytes()


def test_kind_22_every_arrival_order_gives_the_same_bits() -> None:
    values = [1e8, 1.0, -1e8, 1.0]
    gradients = {worker: np.array([value, -0.0]) for worker, value in enumerate(values, start=1)}
    counts = dict.fromkeys(gradients, 1)
    results = {run_server(gradients, counts, 2, seed)[1].finished.value.tobytes() for seed in range(24)}
    results |= {run_ring(gradients, counts, 2, seed)[1].finished.value.tobytes() for seed in range(24)}
    assert len(results) == 1
    assert np.signbit(np.frombuffer(results.pop())[1])  # no zero to start from: -0.0 stays


def test_total_bytes_are_those_of_a_ring_all_reduce() -> None:
    gradients, counts = make((1, 2, 3, 4), 40)
    attempt = attempt_of(counts, 40, 10)
    rings = {worker: RingExchange(attempt, worker, gradients[worker]) for worker in gradients}
    flying = [send for ring in rings.values() for send in ring.begin() if send is not None]
    sent = 0
    while flying:
        receiver, part = flying.pop(0)
        sent += part.data.nbytes
        flying += [send for send in rings[receiver].take(part) if send is not None]
    assert sent == 2 * (4 - 1) * 40 * 8


def test_kind_11_a_repeated_part_counts_once() -> None:
    gradients, counts = make((1, 2), 6)
    attempt = attempt_of(counts, 6, 6)
    first, second = (RingExchange(attempt, worker, gradients[worker]) for worker in (1, 2))
    ((_, part),) = [send for send in first.begin() if send is not None]
    once = [send for send in second.take(part) if send is not None]
    assert list(second.take(part)) == []
    assert len(once) == 1
    gather = Gather(attempt)
    pushes = [next(PushExchange(attempt, worker, gradients[worker]).begin()) for worker in (1, 2)]
    assert gather.take(1, pushes[0]) is None
    assert gather.take(1, pushes[0]) is None
    assert gather.take(2, pushes[1]) is not None


def test_kind_10_a_part_that_does_not_fit_is_refused_before_anything_is_summed() -> None:
    gradients, counts = make((1, 2), 6)
    attempt = attempt_of(counts, 6, 4)
    second = RingExchange(attempt, 2, gradients[2])
    good = next(send for send in RingExchange(attempt, 1, gradients[1]).begin() if send is not None)[1]
    bad = [
        Part(1, 1, 0, "chain", 0, 2, 0, 6, (1,), good.data[:3]),
        Part(1, 1, 0, "chain", 0, 2, 1, 6, (1,), good.data),
        Part(1, 1, 0, "chain", 0, 3, 0, 6, (1,), good.data),
        Part(1, 1, 0, "chain", 0, 2, 0, 7, (1,), good.data),
        Part(1, 1, 0, "chain", 2, 2, 0, 6, (1,), good.data),
        Part(1, 1, 0, "chain", 0, 2, 0, 6, (2,), good.data),
        Part(1, 1, 0, "chain", 0, 2, 0, 6, (), good.data),
    ]
    for part in bad:
        with pytest.raises(ContractBroken):
            list(second.take(part))
    assert second.handled == 0
    list(second.take(good))
    assert second.handled == 1


def test_kind_09_a_non_finite_element_is_noticed_in_the_finished_value() -> None:
    gradients = {1: np.array([1e308, 1.0]), 2: np.array([1e308, 1.0])}
    rings = run_ring(gradients, {1: 1, 2: 1}, 1, 0)
    assert all(ring.finished.finite for ring in rings.values())
    gradients = {1: np.array([1.7e308, 1.0]), 2: np.array([1.7e308, 1.0]), 3: np.array([1.7e308, 1.0])}
    overflowing = {worker: np.full(2, np.inf) if worker == 3 else value for worker, value in gradients.items()}
    assert not any(ring.finished.finite for ring in run_ring(overflowing, {1: 1, 2: 1, 3: 1}, 1, 0).values())
