"""One attempt to reduce the gradients of one step, as one contributor or the server sees it.

Canonical order: the first contributor's (n_k / N) * g_k, then the next ones' added in ascending worker id, in every
strategy. Ring: each chunk travels the chain of contributors accumulating, then laps once more as the finished value.
Server: contributors push their scaled chunks, the server adds them in order and publishes each finished chunk.

`RingExchange`, `PushExchange` and `Gather` are pure and hold no peer: they take parts and return parts to send.
Duty of the caller: hand in only parts of this very attempt whose sender has been checked by `source_of`.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from services.messages import Array, Part, Share
from training.reduction import chunk_bounds, scaled


class ContractBroken(Exception):
    """A part does not fit this attempt: its order, place, count or length is not what was closed."""


@dataclass(frozen=True, slots=True)
class Attempt:
    """What `Close` fixed. `contributors` ascend by worker id."""

    generation: int
    step: int
    attempt: int
    contributors: tuple[Share, ...]
    total: int
    element_count: int
    chunk_elements: int

    @property
    def workers(self) -> tuple[int, ...]:
        return tuple(share.worker for share in self.contributors)


class Finished:
    """The finished value as its chunks come in: array, digest in order, whether all of it is finite."""

    def __init__(self, element_count: int, bounds: tuple[tuple[int, int], ...]) -> None:
        self.value: Array = np.empty(element_count, dtype=np.float64)
        self.finite = True
        self._bounds = bounds
        self._have = [False] * len(bounds)
        self._hash = hashlib.sha256()
        self._hashed = 0
        self._digest = ""

    def has(self, index: int) -> bool:
        return self._have[index]

    def put(self, index: int, data: Array) -> None:
        start, stop = self._bounds[index]
        self.value[start:stop] = data
        self._have[index] = True
        self.finite = self.finite and bool(np.isfinite(data).all())
        while self._hashed < len(self._bounds) and self._have[self._hashed]:
            start, stop = self._bounds[self._hashed]
            self._hash.update(self.value[start:stop].data)
            self._hashed += 1

    @property
    def complete(self) -> bool:
        return self._hashed == len(self._bounds)

    @property
    def digest(self) -> str:
        """SHA-256 of the whole value; only when complete."""
        assert self.complete
        if not self._digest:
            self._digest = self._hash.hexdigest()
        return self._digest


class _Chunked:
    """Cutting and checking that every kind of exchange shares."""

    def __init__(self, attempt: Attempt) -> None:
        self.attempt = attempt
        self.bounds = chunk_bounds(attempt.element_count, attempt.chunk_elements)
        self.finished = Finished(attempt.element_count, self.bounds)

    def part(self, lane: str, index: int, summed: tuple[int, ...], data: Array) -> Part:
        key = self.attempt
        start = self.bounds[index][0]
        return Part(
            key.generation, key.step, key.attempt, lane, index, len(self.bounds), start, key.element_count, summed, data
        )

    def check(self, part: Part, summed: tuple[int, ...]) -> None:
        """Raise ContractBroken unless the part is chunk `index` of this very cut and carries this order."""
        if part.count != len(self.bounds) or part.total != self.attempt.element_count:
            raise ContractBroken(
                f"{part.total} elements in {part.count} chunks where {self.attempt.element_count} in"
                f" {len(self.bounds)} are summed"
            )
        if not 0 <= part.index < part.count:
            raise ContractBroken(f"chunk {part.index} of {part.count}")
        start, stop = self.bounds[part.index]
        if part.start != start or part.data.size != stop - start:
            raise ContractBroken(f"chunk {part.index} starts at {part.start} with {part.data.size} elements")
        if part.summed != summed:
            raise ContractBroken(f"order {part.summed} where {summed} was due")


class _Contributing(_Chunked):
    """An exchange as a contributor sees it: it has a gradient and a share of the step."""

    def __init__(self, attempt: Attempt, worker: int, gradient: Array) -> None:
        super().__init__(attempt)
        self._place = attempt.workers.index(worker)
        self._gradient = gradient
        self.handled = 0  # own chunks added and sent on

    def own(self, index: int) -> Array:
        """(n_k / N) * g_k of one chunk, as a new array."""
        start, stop = self.bounds[index]
        share = self.attempt.contributors[self._place]
        return scaled(self._gradient[start:stop], share.sample_count, self.attempt.total)


class RingExchange(_Contributing):
    """The chain and the lap, as contributor `worker` sees them."""

    def __init__(self, attempt: Attempt, worker: int, gradient: Array) -> None:
        super().__init__(attempt, worker, gradient)
        self._ring = attempt.workers
        self._added = [False] * len(self.bounds)

    def source_of(self, lane: str) -> int | None:
        """Which contributor a part of this lane must come from, or None for a lane that is not expected here."""
        if lane == "chain" and self._place > 0:
            return self._ring[self._place - 1]
        if lane == "lap" and self._place < len(self._ring) - 1:
            return self._ring[self._place - 1]  # the first one's predecessor is the last
        return None

    def begin(self) -> Iterator[tuple[int, Part] | None]:
        """The first contributor's own chunks: (receiver, part), or None for one that is finished here."""
        if self._place == 0:
            for index in range(len(self.bounds)):
                yield from self._pass_on(index, self.own(index), ())

    def take(self, part: Part) -> Iterator[tuple[int, Part] | None]:
        """Handle a chain or lap part. A repeated one yields nothing. Raises ContractBroken."""
        if part.lane == "chain":
            self.check(part, self._ring[: self._place])
            if not self._added[part.index]:
                yield from self._pass_on(part.index, self._add(part.index, part.data), part.summed)
            return
        self.check(part, self._ring)
        if not self.finished.has(part.index):
            self.finished.put(part.index, part.data)
            if self._place < len(self._ring) - 2:
                yield self._ring[self._place + 1], self.part("lap", part.index, self._ring, part.data)
            else:
                yield None

    def _add(self, index: int, accumulated: Array) -> Array:
        own = self.own(index)
        with np.errstate(all="ignore"):
            return np.add(accumulated, own, out=own)

    def _pass_on(self, index: int, data: Array, summed: tuple[int, ...]) -> Iterator[tuple[int, Part] | None]:
        self._added[index] = True
        self.handled += 1
        order = (*summed, self._ring[self._place])
        if self._place < len(self._ring) - 1:
            yield self._ring[self._place + 1], self.part("chain", index, order, data)
            return
        self.finished.put(index, data)
        yield (self._ring[0], self.part("lap", index, order, data)) if len(self._ring) > 1 else None


class PushExchange(_Contributing):
    """What a contributor does with a parameter server: push its scaled chunks, take the published ones."""

    def begin(self) -> Iterator[Part]:
        """The scaled chunks, each counted in `handled` as it is handed out."""
        worker = self.attempt.workers[self._place]
        for index in range(len(self.bounds)):
            self.handled += 1
            yield self.part("push", index, (worker,), self.own(index))

    def take(self, part: Part) -> None:
        """Keep a published chunk. Raises ContractBroken."""
        self.check(part, self.attempt.workers)
        if not self.finished.has(part.index):
            self.finished.put(part.index, part.data)


class Gather(_Chunked):
    """What the parameter server does: add pushed chunks in ascending worker id, whatever order they arrive in."""

    def __init__(self, attempt: Attempt) -> None:
        super().__init__(attempt)
        self._early: list[dict[int, Array]] = [{} for _ in self.bounds]
        self._sums: list[Array | None] = [None] * len(self.bounds)
        self._next = [0] * len(self.bounds)  # place of the contributor that is added next

    def take(self, worker: int, part: Part) -> Part | None:
        """Keep or add one pushed chunk; the finished chunk to publish, if this completed it. Raises ContractBroken."""
        self.check(part, (worker,))
        place = self.attempt.workers.index(worker)
        early = self._early[part.index]
        if place < self._next[part.index] or place in early:
            return None
        early[place] = part.data
        return self._add_ready(part.index)

    def _add_ready(self, index: int) -> Part | None:
        early = self._early[index]
        while (place := self._next[index]) in early:
            data, total = early.pop(place), self._sums[index]
            with np.errstate(all="ignore"):
                self._sums[index] = data if total is None else total + data
            self._next[index] = place + 1
        if self._next[index] < len(self.attempt.contributors):
            return None
        done, self._sums[index] = self._sums[index], None
        assert done is not None
        return self.part("publish", index, self.attempt.workers, done)
