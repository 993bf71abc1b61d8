"""Whole arrays as parts, and back: the state for a joiner, the reduced value for a member that does not hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from services.jobs import State
from services.messages import Array, Fetch, Part
from training.reduction import chunk_bounds

SOURCES_MAX = 65  # workers of the largest run, and a server; names cost a liar nothing
_LANES = ("chain", "lap", "push", "publish")  # of an attempt
WINDOW_PARTS = 8  # what one `Fetch` is answered with; bounds what a repeated question can pile up


def state_parts(state: State, fetch: Fetch, chunk_elements: int) -> list[Part]:
    """Parameters, then velocity, as parts of one array (2P,) of the lane "state": the window that `fetch` asks for."""
    count = state.parameters.size

    def cut(start: int, stop: int) -> Array:
        if stop <= count:
            return state.parameters[start:stop]
        if start >= count:
            return state.velocity[start - count : stop - count]
        return np.concatenate((state.parameters[start:], state.velocity[: stop - count]))

    return _window(cut, 2 * count, fetch, (), chunk_elements)


def array_parts(array: Array, fetch: Fetch, summed: tuple[int, ...], chunk_elements: int) -> list[Part]:
    """The window of `array` that `fetch` asks for, as parts of the lane that it names."""
    return _window(lambda start, stop: array[start:stop], array.size, fetch, summed, chunk_elements)


def _window(
    cut: Callable[[int, int], Array], total: int, fetch: Fetch, summed: tuple[int, ...], chunk_elements: int
) -> list[Part]:
    bounds = chunk_bounds(total, chunk_elements)
    window = range(fetch.first, min(fetch.first + WINDOW_PARTS, len(bounds)))
    return [
        Part(
            fetch.generation, fetch.step, fetch.attempt, fetch.what, index, len(bounds), bounds[index][0], total,
            summed, cut(*bounds[index]),
        )
        for index in window
    ]  # fmt: skip


class Assembly:
    """An array that comes in as parts from one source, window by window; repeated parts change nothing."""

    def __init__(self, source: str, fetch: Fetch, element_count: int, chunk_elements: int) -> None:
        self.source = source
        self.fetch = fetch
        self.array: Array = np.empty(element_count, dtype=np.float64)
        self._bounds = chunk_bounds(element_count, chunk_elements)
        self._missing = set(range(len(self._bounds)))
        self._missing_before = len(self._missing)

    @property
    def key(self) -> tuple[str, int, int]:
        return self.fetch.what, self.fetch.step, self.fetch.attempt

    def fits(self, part: Part) -> bool:
        """Whether the part is a chunk of this very array."""
        if (part.lane, part.step, part.attempt) != self.key or not 0 <= part.index < len(self._bounds):
            return False
        start, stop = self._bounds[part.index]
        return (part.count, part.total, part.start, part.data.size) == (
            len(self._bounds), self.array.size, start, stop - start,
        )  # fmt: skip

    @property
    def complete(self) -> bool:
        return not self._missing

    def progressed(self) -> bool:
        """Whether a part came in since this was last asked."""
        before, self._missing_before = self._missing_before, len(self._missing)
        return self._missing_before < before

    def put(self, part: Part) -> bool:
        """Keep a part that fits. True when the window that was asked for is complete."""
        if part.index not in self._missing:
            return False
        start, stop = self._bounds[part.index]
        self.array[start:stop] = part.data
        self._missing.discard(part.index)
        window = range(self.fetch.first, min(self.fetch.first + WINDOW_PARTS, len(self._bounds)))
        return not any(index in self._missing for index in window)

    def ask(self) -> Fetch:
        """What to ask for now: the window that begins with the first missing part."""
        self.fetch = replace(self.fetch, first=min(self._missing, default=0))
        return self.fetch


class Early:
    """Parts of a newer attempt than the receiver knows yet: of each source those of its newest attempt.

    One source's claim of an attempt far ahead does not push out what the others sent, and at most one payload a lane
    is kept of each.
    """

    def __init__(self) -> None:
        self._kept: dict[str, tuple[tuple[int, int, int], dict[tuple[str, int], Part]]] = {}

    def keep(self, source: str, part: Part, element_count: int, chunk_elements: int) -> bool:
        """False, and nothing is kept, when it is no chunk of an array of so many elements, cut like this."""
        start = part.index * chunk_elements
        size, count = min(chunk_elements, element_count - start), -(-element_count // chunk_elements)
        told = (part.total, part.start, part.count, part.data.size)
        if part.lane not in _LANES or part.index < 0 or told != (element_count, start, count, size):
            return False
        key = (part.generation, part.step, part.attempt)
        newest, parts = self._kept.get(source, (key, {}))
        if key >= newest:
            self._kept[source] = (key, parts if key == newest else {})
            self._kept[source][1].setdefault((part.lane, part.index), part)
        while len(self._kept) > SOURCES_MAX:
            del self._kept[next(iter(self._kept))]
        return True

    def take(self, generation: int, step: int, attempt: int) -> list[tuple[str, Part]]:
        """What was kept for this attempt; nothing older is kept afterwards."""
        key = (generation, step, attempt)
        kept, self._kept = self._kept, {source: item for source, item in self._kept.items() if item[0] > key}
        return [(source, part) for source, item in kept.items() if item[0] == key for part in item[1].values()]
