"""Whole arrays as parts, and back: the state for a joiner, the reduced value for a member that does not hold it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from services.jobs import State
from services.messages import Array, Fetch, Part
from training.reduction import chunk_bounds

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
    """Parts of a newer attempt than the receiver knows yet: kept for one attempt (the newest), one payload at most."""

    def __init__(self) -> None:
        self._key = (0, 0, 0)
        self._parts: dict[tuple[str, str, int], tuple[str, Part]] = {}

    def keep(self, source: str, part: Part) -> None:
        key = (part.generation, part.step, part.attempt)
        if key < self._key:
            return
        if key > self._key:
            self._key, self._parts = key, {}
        self._parts.setdefault((source, part.lane, part.index), (source, part))

    def take(self, generation: int, step: int, attempt: int) -> list[tuple[str, Part]]:
        """What was kept for this attempt; nothing older is kept afterwards."""
        if self._key > (generation, step, attempt):
            return []
        kept = list(self._parts.values()) if self._key == (generation, step, attempt) else []
        self._key, self._parts = (generation, step, attempt), {}
        return kept
