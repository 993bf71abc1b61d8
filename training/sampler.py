"""Which samples each member gets next, and which ones this epoch has already committed.

An epoch is one permutation of all sample ids. At every open, `remaining = permutation minus committed`, and member
j of n gets every n-th of it. Nothing is remembered about deals: only `commit` moves the sampler, so a sample whose
gradient was lost is simply dealt again. The permutations of all epochs come from ONE PCG64 generator, carried
through, so that a lost generator state shows as another permutation.

Duties of the caller: commit exactly the ids that a durable decision names, once, and open no step before; a step
that failed commits nothing. `commit` is the one method that changes the object.

Cost: a deal and a commit are O(batch), whatever the number of samples; only a new epoch and `state` are O(samples).
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.arrays import IntArray
from training.config import BatchConfig
from training.errors import ConfigurationError, ContractError, DataError
from training.generator import GeneratorState, generator_state, set_generator, whole_number

Json = dict[str, Any]


@dataclass(frozen=True, slots=True)
class SamplerState:
    """Everything that a sampler is: where the epoch started and what of it is committed.

    `committed` is in ascending order. `generator_at_epoch` is the generator just before this epoch's permutation
    was drawn, `generator` just after: a restore draws again and must arrive there.
    """

    sample_count: int
    seed: int
    epoch: int
    committed: tuple[int, ...]
    generator_at_epoch: GeneratorState
    generator: GeneratorState

    def to_json(self) -> Json:
        """A dict that `json.dumps` takes."""
        return {
            "sample_count": self.sample_count,
            "seed": self.seed,
            "epoch": self.epoch,
            "committed": list(self.committed),
            "generator_at_epoch": self.generator_at_epoch.to_json(),
            "generator": self.generator.to_json(),
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "SamplerState":
        """Inverse of `to_json`. Raises DataError that says what is wrong."""
        try:
            return cls(
                whole_number(value["sample_count"]),
                whole_number(value["seed"]),
                whole_number(value["epoch"]),
                tuple(whole_number(sample) for sample in value["committed"]),
                GeneratorState.from_json(value["generator_at_epoch"]),
                GeneratorState.from_json(value["generator"]),
            )
        except (KeyError, TypeError, ValueError) as error:
            raise DataError(f"this is no sampler state ({error!r}); take it from a readable checkpoint") from error


class Sampler:
    """Deals the samples 0 .. sample_count-1, epoch after epoch; epochs are numbered from 0."""

    __slots__ = (
        "_at_epoch",
        "_epoch",
        "_frontier",
        "_generator",
        "_permutation",
        "_place_of",
        "_returned",
        "_sample_count",
        "_seed",
    )

    # `_permutation[place]` is a sample id, `_place_of` its inverse. Every place from `_frontier` on is uncommitted;
    # below it only those in `_returned` (ascending) are: dealt once, and not committed by that step.

    def __init__(self, sample_count: int, seed: int) -> None:
        """Start epoch 0. Raises ConfigurationError for no samples or a negative seed."""
        if sample_count < 1:
            raise ConfigurationError(
                f"the training set has {sample_count} samples; training needs at least 1: choose another data set"
            )
        if seed < 0:
            raise ConfigurationError(f"the sampler's seed is {seed}; it must be at least 0")
        self._sample_count = sample_count
        self._seed = seed
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._epoch = 0
        self._frontier = 0
        self._returned: list[int] = []
        self._begin_epoch()

    @classmethod
    def restore(cls, state: SamplerState) -> "Sampler":
        """The sampler that `state` was taken from. Raises DataError when the state contradicts itself."""
        try:
            sampler = cls(state.sample_count, state.seed)
        except ConfigurationError as error:
            raise DataError(f"damaged sampler state: {error}") from error
        sampler._epoch = state.epoch
        set_generator(sampler._generator, state.generator_at_epoch)
        sampler._begin_epoch()
        if generator_state(sampler._generator) != state.generator:
            raise DataError(
                f"damaged sampler state: drawing epoch {state.epoch} again does not lead to the saved generator"
                " state; use another checkpoint"
            )
        if state.epoch < 0 or len(state.committed) >= state.sample_count:
            raise DataError(
                f"damaged sampler state: epoch {state.epoch} with {len(state.committed)} of {state.sample_count}"
                " samples committed; use another checkpoint"
            )
        try:
            sampler.commit(state.committed)
        except ContractError as error:
            raise DataError(f"damaged sampler state: {error}") from error
        return sampler

    @property
    def epoch(self) -> int:
        """The epoch that the next deal belongs to."""
        return self._epoch

    @property
    def sample_count(self) -> int:
        """Samples per epoch."""
        return self._sample_count

    @property
    def remaining_count(self) -> int:
        """How many samples of this epoch are not committed; at least 1. O(1)."""
        return len(self._returned) + self._sample_count - self._frontier

    def remaining(self) -> tuple[int, ...]:
        """The uncommitted ids of this epoch, in the order in which they are dealt. O(samples)."""
        return tuple(self._first_remaining(self._sample_count))

    def deal(self, members: Sequence[int], batch: BatchConfig) -> dict[int, tuple[int, ...]]:
        """Deal the next step to `members` (ascending worker ids); changes nothing.

        per_worker b: member j of n gets remaining[j::n][:b]. global B: take = remaining[:B], member j gets
        take[j::n], so the set is the same for any n and sizes differ by at most one, the first B % n members having
        one more. A step never crosses an epoch: near its end members get fewer ids, or none (an empty tuple).
        Raises ContractError unless the members are ascending, distinct and at least one.
        """
        count = len(members)
        if count == 0 or any(members[j] >= members[j + 1] for j in range(count - 1)):
            raise ContractError(f"members {list(members)} must be ascending, distinct and at least one")
        take = self._first_remaining(batch.size * count if batch.mode == "per_worker" else batch.size)
        return {member: tuple(take[j::count]) for j, member in enumerate(members)}

    def commit(self, ids: Iterable[int]) -> None:
        """Count these ids as consumed; when none remain, begin the next epoch.

        Raises ContractError, and changes nothing, if an id is repeated or not among the remaining ones.
        """
        listed = list(ids)
        if not listed:
            return
        places = set(self._places(listed))
        frontier = max(self._frontier, max(places) + 1)
        window = [*self._returned, *range(self._frontier, frontier)]
        left = [place for place in window if place not in places]
        if len(left) + len(listed) != len(window):
            raise ContractError(self._why_refused(listed))
        self._returned = left
        self._frontier = frontier
        if self.remaining_count == 0:
            self._epoch += 1
            self._begin_epoch()

    def state(self) -> SamplerState:
        """Everything needed to continue identically. O(samples)."""
        done = np.ones(self._sample_count, dtype=bool)
        done[self._permutation[self._frontier :]] = False
        done[self._permutation[self._returned]] = False
        return SamplerState(
            self._sample_count,
            self._seed,
            self._epoch,
            tuple(np.flatnonzero(done).tolist()),
            self._at_epoch,
            generator_state(self._generator),
        )

    def _begin_epoch(self) -> None:
        self._at_epoch = generator_state(self._generator)
        self._permutation: IntArray = self._generator.permutation(self._sample_count)
        self._place_of: IntArray = np.empty_like(self._permutation)
        self._place_of[self._permutation] = np.arange(self._sample_count)
        self._frontier = 0
        self._returned = []

    def _first_remaining(self, count: int) -> list[int]:
        """Up to `count` uncommitted ids, in order."""
        fresh = self._permutation[self._frontier : self._frontier + max(0, count - len(self._returned))].tolist()
        return [*self._permutation[self._returned[:count]].tolist(), *fresh] if self._returned else fresh

    def _places(self, ids: list[int]) -> list[int]:
        if min(ids) < 0 or max(ids) >= self._sample_count:
            raise ContractError(self._why_refused(ids))
        places: list[int] = self._place_of[ids].tolist()
        return places

    def _why_refused(self, ids: list[int]) -> str:
        remaining = set(self.remaining())
        gone = sorted({sample for sample in ids if sample not in remaining})
        repeated = sorted(sample for sample, times in Counter(ids).items() if times > 1)
        what = f"ids {gone[:10]} are not among those remaining" if gone else f"ids {repeated[:10]} are repeated"
        return f"cannot commit in epoch {self._epoch} of {self._sample_count} samples: {what}; nothing was committed"
