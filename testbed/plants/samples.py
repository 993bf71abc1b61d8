"""Bugs in which samples are dealt and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from services.records import Committed
from services.roles.coordinator import Coordinator
from testbed.plants.registry import Patch, plant
from training.config import BatchConfig
from training.sampler import Sampler


@plant("sample-lost", invariant="sample accounting", scenario="kill-at-open")
def sample_lost() -> list[Patch]:
    """What a dead member was dealt counts as consumed and is never dealt again."""
    original = Coordinator.committed

    def committed(self: Coordinator, fact: Committed) -> None:
        original(self, fact)
        assert self.current is not None
        counted = {sample for ids in fact.sample_ids for sample in ids}
        dealt = [sample for ids in self.current.opened.deals.values() for sample in ids]
        self.sampler.commit([sample for sample in dealt if sample not in counted])

    return [(Coordinator, "committed", committed)]


@plant("sample-repeated", invariant="sample accounting")
def sample_repeated() -> list[Patch]:
    """One sample of each step is not counted as consumed, so it is dealt again."""
    original = Sampler.commit

    def commit(self: Sampler, ids: Iterable[int]) -> None:
        listed = list(ids)
        original(self, listed[:-1] if len(listed) > 1 else listed)

    return [(Sampler, "commit", commit)]


@plant("deals-overlap", invariant="sample accounting")
def deals_overlap() -> list[Patch]:
    """The last member is dealt the first member's first sample as well."""
    deal, commit = Sampler.deal, Sampler.commit

    def overlapping(self: Sampler, members: Sequence[int], batch: BatchConfig) -> dict[int, tuple[int, ...]]:
        dealt = deal(self, members, batch)
        first, last = members[0], members[-1]
        if last != first and dealt[first] and dealt[last]:
            dealt[last] = (dealt[first][0], *dealt[last][1:])
        return dealt

    def each_once(self: Sampler, ids: Iterable[int]) -> None:
        commit(self, list(dict.fromkeys(ids)))

    return [(Sampler, "deal", overlapping), (Sampler, "commit", each_once)]


@plant("deal-off-by-one", invariant="sample accounting")
def deal_off_by_one() -> list[Patch]:
    """The sampler's position is one too far: the first remaining sample is left for later."""
    original = Sampler.deal

    def deal(self: Sampler, members: Sequence[int], batch: BatchConfig) -> dict[int, tuple[int, ...]]:
        if self.remaining_count <= 1:
            return original(self, members, batch)
        take = self._first_remaining(1 + batch.size * len(members))[1:]
        return {member: tuple(take[place :: len(members)]) for place, member in enumerate(members)}

    return [(Sampler, "deal", deal)]


@plant("static-shards", invariant="sample accounting", scenario="kill-at-open")
def static_shards() -> list[Patch]:
    """Deals go on as if nobody had died: the dead member's share stays with it."""
    original = Sampler.deal

    def deal(self: Sampler, members: Sequence[int], batch: BatchConfig) -> dict[int, tuple[int, ...]]:
        everybody = list(range(1, max(members) + 1))
        dealt = original(self, everybody, batch)
        kept = {member: dealt[member] for member in members}
        return kept if any(kept.values()) else original(self, members, batch)

    return [(Sampler, "deal", deal)]


@plant("last-batch-dropped", invariant="sample accounting")
def last_batch_dropped() -> list[Patch]:
    """An epoch ends when less than a whole batch of it is left."""
    original = Sampler.commit

    def commit(self: Sampler, ids: Iterable[int]) -> None:
        listed = list(ids)
        original(self, listed)
        if 0 < self.remaining_count < len(listed):
            original(self, self.remaining())

    return [(Sampler, "commit", commit)]


@plant("every-epoch-alike", invariant="sample accounting")
def every_epoch_alike() -> list[Patch]:
    """The generator starts from the seed again at each epoch, so that all of them have one order."""
    original = Sampler._begin_epoch

    def begin_epoch(self: Sampler) -> None:
        self._generator = np.random.Generator(np.random.PCG64(self._seed))
        original(self)

    return [(Sampler, "_begin_epoch", begin_epoch)]
