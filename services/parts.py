"""Whole arrays as parts, and back: the state for a joiner, the reduced value for a member that does not hold it."""

from __future__ import annotations

import numpy as np

from services.jobs import State
from services.messages import Array, Part
from training.reduction import chunk_bounds


def state_parts(state: State, generation: int, step: int, chunk_elements: int) -> list[Part]:
    """Parameters, then velocity, as parts of one array (2P,) of the lane "state"."""
    joined = np.concatenate((state.parameters, state.velocity))
    return array_parts(joined, "state", generation, step, 0, (), chunk_elements)


def array_parts(
    array: Array, lane: str, generation: int, step: int, attempt: int, summed: tuple[int, ...], chunk_elements: int
) -> list[Part]:
    """`array` cut into parts."""
    bounds = chunk_bounds(array.size, chunk_elements)
    return [
        Part(generation, step, attempt, lane, index, len(bounds), start, array.size, summed, array[start:stop])
        for index, (start, stop) in enumerate(bounds)
    ]


class Assembly:
    """An array that comes in as parts from one source; repeated parts change nothing."""

    def __init__(self, lane: str, step: int, attempt: int, element_count: int, chunk_elements: int) -> None:
        self.key = (lane, step, attempt)
        self.array: Array = np.empty(element_count, dtype=np.float64)
        self._bounds = chunk_bounds(element_count, chunk_elements)
        self._missing = set(range(len(self._bounds)))
        self._missing_before = len(self._missing)

    def fits(self, part: Part) -> bool:
        """Whether the part is a chunk of this very array."""
        if (part.lane, part.step, part.attempt) != self.key or not 0 <= part.index < len(self._bounds):
            return False
        start, stop = self._bounds[part.index]
        return (part.count, part.total, part.start, part.data.size) == (
            len(self._bounds), self.array.size, start, stop - start,
        )  # fmt: skip

    def progressed(self) -> bool:
        """Whether a part came in since this was last asked."""
        before, self._missing_before = self._missing_before, len(self._missing)
        return self._missing_before < before

    def put(self, part: Part) -> bool:
        """Keep a part that fits. True when this completed the array."""
        if part.index not in self._missing:
            return False
        start, stop = self._bounds[part.index]
        self.array[start:stop] = part.data
        self._missing.discard(part.index)
        return not self._missing


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
