"""Modelled all-reduce: the messages that the production exchange really sends, on links that are assumed.

Each message waits until its sender's line is free, takes its bytes over the bandwidth, and arrives a latency later at a
receiver that takes in one message at a time. What the exchange answers with is sent at once. Nothing else costs time.
By hand, for an array of one chunk of S bytes:  ring 2(n-1)(latency + S/bandwidth),  server 2(latency + n S/bandwidth).
"""

from __future__ import annotations

import heapq
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import numpy as np

from services.codec import encode
from services.exchange import Attempt, Gather, PushExchange, RingExchange
from services.messages import Part, Share
from training.reduction import chunk_bounds

SERVER = 0  # as an address; workers count from 1
_Send = tuple[int, Part]


@dataclass(frozen=True, slots=True)
class Network:
    """The assumed links: the same between any two, full duplex, no contention but at their two ends."""

    latency_us: float
    bytes_per_us: float

    def describe(self) -> str:
        """For the reader of a figure."""
        gigabit_per_s = self.bytes_per_us * 8e-3
        return f"every link: {self.latency_us:g} us one way, {gigabit_per_s:g} Gbit/s, full duplex, messages one by one"


@dataclass(frozen=True, slots=True)
class Modelled:
    """What the model says, and the counts that it was made from."""

    time_us: float
    messages: int
    moved_bytes: int


def model_ring(network: Network, workers: int, elements: int, chunk_elements: int) -> Modelled:
    """The chain and the lap of one array."""
    attempt = _attempt(workers, elements, chunk_elements)
    rings = {worker: RingExchange(attempt, worker, np.zeros(elements)) for worker in attempt.workers}
    first = attempt.workers[0]

    def take(target: int, _source: int, part: Part) -> Iterable[_Send]:
        return (send for send in rings[target].take(part) if send is not None)

    begun = [(first, send) for send in rings[first].begin() if send is not None]
    result = _play(network, begun, take)
    assert all(ring.finished.complete for ring in rings.values())
    return result


def model_server(network: Network, workers: int, elements: int, chunk_elements: int) -> Modelled:
    """Push and publish of one array."""
    attempt = _attempt(workers, elements, chunk_elements)
    pushes = {worker: PushExchange(attempt, worker, np.zeros(elements)) for worker in attempt.workers}
    gather = Gather(attempt)

    def take(target: int, source: int, part: Part) -> Iterable[_Send]:
        if target != SERVER:
            pushes[target].take(part)
            return ()
        done = gather.take(source, part)
        return () if done is None else [(worker, done) for worker in attempt.workers]

    # Chunk by chunk around the workers: they begin at the same moment.
    parts = {worker: list(push.begin()) for worker, push in pushes.items()}
    chunks = range(len(chunk_bounds(elements, chunk_elements)))
    begun = [(worker, (SERVER, parts[worker][chunk])) for chunk in chunks for worker in attempt.workers]
    result = _play(network, begun, take)
    assert all(push.finished.complete for push in pushes.values())
    return result


def _attempt(workers: int, elements: int, chunk_elements: int) -> Attempt:
    shares = tuple(Share(worker, 1, 1) for worker in range(1, workers + 1))
    return Attempt(1, 1, 0, shares, workers, elements, chunk_elements)


class _Lines:
    """When each end's line is free again, in either direction."""

    def __init__(self, network: Network) -> None:
        self._network = network
        self._out_free_us: dict[int, float] = defaultdict(float)
        self._in_free_us: dict[int, float] = defaultdict(float)

    def carry(self, now_us: float, source: int, target: int, size_bytes: int) -> float:
        """When a message that is handed over now has arrived whole."""
        takes_us = size_bytes / self._network.bytes_per_us
        begins_us = max(now_us, self._out_free_us[source])
        self._out_free_us[source] = begins_us + takes_us
        arrived_us = max(begins_us + self._network.latency_us, self._in_free_us[target]) + takes_us
        self._in_free_us[target] = arrived_us
        return arrived_us


def _play(
    network: Network, begun: list[tuple[int, _Send]], take: Callable[[int, int, Part], Iterable[_Send]]
) -> Modelled:  # fmt: skip
    """Let the messages arrive in order of time until none is on its way."""
    lines = _Lines(network)
    on_the_way: list[tuple[float, int, int, int, Part]] = []
    sizes: dict[tuple[str, int, int], int] = {}  # encodings of one lane, length and order are equally long
    messages, moved_bytes, now_us = 0, 0, 0.0

    def send(source: int, target: int, part: Part) -> None:
        nonlocal messages, moved_bytes
        key = (part.lane, part.data.size, len(part.summed))
        size_bytes = sizes.get(key) or sizes.setdefault(key, len(encode(part)))
        messages, moved_bytes = messages + 1, moved_bytes + size_bytes
        heapq.heappush(
            on_the_way, (lines.carry(now_us, source, target, size_bytes), messages, source, target, part)
        )  # fmt: skip

    for source, (target, part) in begun:
        send(source, target, part)
    while on_the_way:
        now_us, _, source, target, part = heapq.heappop(on_the_way)
        for next_target, answer in take(target, source, part):
            send(target, next_target, answer)
    return Modelled(now_us, messages, moved_bytes)
