"""The verifier's own bookkeeping of samples: permutations from the seed, what remains of an epoch, who is dealt what.

An epoch is `Generator(PCG64(seed)).permutation(sample_count)`, one generator drawn through all epochs. Member j of n is
dealt remaining[j::n][:b] (`per_worker` b), or take[j::n] of take = remaining[:B] (`global` B), members in ascending id.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

Json = dict[str, Any]

EPOCHS_AHEAD_MAX = 64  # an epoch further ahead of those that were drawn is no epoch that a run has come to


class Permutations:
    """Epoch after epoch from a generator state. Holds every epoch's generator states, and one permutation."""

    def __init__(self, sampler: Mapping[str, Any]) -> None:
        """`sampler` is a sampler state as JSON: it says at which epoch the run starts, and from which generator."""
        self.sample_count = int(sampler["sample_count"])
        self.seed = int(sampler["seed"])
        self._first = int(sampler["epoch"])
        self._generator = np.random.Generator(np.random.PCG64(0))
        self._states = [dict(sampler["generator_at_epoch"])]  # before each epoch was drawn
        self._drawn: tuple[int, list[int]] = (-1, [])

    def of(self, epoch: int) -> list[int]:
        """The ids of this epoch, in the order in which they are dealt."""
        if self._drawn[0] != epoch:
            if epoch - self._first >= len(self._states) + EPOCHS_AHEAD_MAX:
                raise ValueError(
                    f"epoch {epoch}, where epoch {self._first + len(self._states) - 1} is the newest so far"
                )
            while len(self._states) <= epoch - self._first:
                self._draw(self._first + len(self._states) - 1)
            self._draw(epoch)
        return self._drawn[1]

    def states(self, epoch: int) -> tuple[Json, Json]:
        """The generator just before and just after this epoch was drawn."""
        self.of(epoch)
        if len(self._states) <= epoch - self._first + 1:
            self._draw(epoch)
        return self._states[epoch - self._first], self._states[epoch - self._first + 1]

    def _draw(self, epoch: int) -> None:
        if epoch < self._first:
            raise ValueError(f"epoch {epoch} lies before epoch {self._first}, with which the run starts")
        bits: Any = self._generator.bit_generator
        bits.state = _to_numpy(self._states[epoch - self._first])
        self._drawn = (epoch, self._generator.permutation(self.sample_count).tolist())
        if len(self._states) == epoch - self._first + 1:
            self._states.append(_from_numpy(bits.state))


def fresh_generator(seed: int) -> Json:
    """The state of `PCG64(seed)`."""
    return _from_numpy(np.random.PCG64(seed).state)


def _to_numpy(state: Mapping[str, Any]) -> Json:
    return {
        "bit_generator": "PCG64",
        "state": {"state": int(state["state"]), "inc": int(state["increment"])},
        "has_uint32": state["has_uint32"],
        "uinteger": state["uinteger"],
    }


def _from_numpy(raw: Any) -> Json:
    return {
        "bit_generator": "PCG64",
        "state": str(raw["state"]["state"]),
        "increment": str(raw["state"]["inc"]),
        "has_uint32": int(raw["has_uint32"]),
        "uinteger": int(raw["uinteger"]),
    }


class Deck:
    """What remains of the current epoch. Robust: it goes on whatever a faulty run commits, and says what was wrong."""

    def __init__(self, permutations: Permutations, sampler: Mapping[str, Any]) -> None:
        self._permutations = permutations
        self._begin(int(sampler["epoch"]))
        self._take_out(sampler["committed"])

    @property
    def remaining_count(self) -> int:
        return len(self._returned) + len(self._order) - self._frontier

    def remaining(self) -> list[int]:
        return self._first(len(self._order))

    def deal(self, members: Sequence[int], mode: str, size: int) -> dict[int, tuple[int, ...]]:
        """What `members` (ascending) must be dealt next."""
        count = len(members)
        take = self._first(size * count if mode == "per_worker" else size)
        return {member: tuple(take[j::count]) for j, member in enumerate(members)}

    def commit(self, ids: Sequence[int]) -> list[int]:
        """Count ids as consumed. Returns those that were not there to be consumed (again, or no sample at all)."""
        wrong = self._take_out(ids)
        if self.remaining_count == 0:
            self._begin(self.epoch + 1)
        return wrong

    def abandon(self, epoch: int) -> list[int]:
        """Begin `epoch` although this one is not finished. Returns the ids that are thereby lost."""
        lost = self.remaining()
        self._begin(epoch)
        return lost

    def _begin(self, epoch: int) -> None:
        self.epoch = epoch
        self._order = self._permutations.of(epoch)
        self._left = set(self._order)
        self._frontier = 0  # every place of the order from here on remains
        self._returned: list[int] = []  # ids before it that remain, in order

    def _first(self, count: int) -> list[int]:
        fresh = count - len(self._returned)
        if fresh <= 0:
            return self._returned[:count]
        return self._returned + self._order[self._frontier : self._frontier + fresh]

    def _take_out(self, ids: Sequence[int]) -> list[int]:
        next_ones = self._order[self._frontier : self._frontier + len(ids)]
        same = len(next_ones) == len(ids) and set(next_ones) == set(ids)
        if not self._returned and same:  # all that was dealt, as in an undisturbed step
            self._left.difference_update(ids)
            self._frontier += len(ids)
            return []
        wrong = []
        for sample in ids:
            if sample in self._left:
                self._left.remove(sample)
            else:
                wrong.append(sample)
        self._returned = [sample for sample in self._returned if sample in self._left]
        # Pass the frontier over what was dealt: up to the last place that is gone.
        fresh = len(self._left) - len(self._returned)
        while len(self._order) - self._frontier > fresh:
            sample = self._order[self._frontier]
            self._frontier += 1
            if sample in self._left:
                self._returned.append(sample)
                fresh -= 1
        return wrong
