"""Bugs in which samples are dealt and counted."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from services.records import Committed
from services.roles.stepping import Stepping
from testbed.plants.registry import Patch, plant
from training.config import BatchConfig
from training.sampler import Sampler


@plant("sample-lost", invariant="sample accounting", scenario="kill-at-open")
def sample_lost() -> list[Patch]:
    """What a dead member was dealt counts as consumed and is never dealt again."""
    original = Stepping.committed

    def committed(self: Stepping, fact: Committed) -> None:
        original(self, fact)
        assert self.current is not None
        counted = {sample for ids in fact.sample_ids for sample in ids}
        dealt = [sample for ids in self.current.opened.deals.values() for sample in ids]
        self.sampler.commit([sample for sample in dealt if sample not in counted])

    return [(Stepping, "committed", committed)]


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
    original = Sampler.deal

    def deal(self: Sampler, members: Sequence[int], batch: BatchConfig) -> dict[int, tuple[int, ...]]:
        dealt = original(self, members, batch)
        first, last = members[0], members[-1]
        if last != first and dealt[first] and dealt[last]:
            dealt[last] = (dealt[first][0], *dealt[last][1:])
        return dealt

    def commit(self: Sampler, ids: Iterable[int]) -> None:
        original_commit(self, list(dict.fromkeys(ids)))

    original_commit = Sampler.commit
    return [(Sampler, "deal", deal), (Sampler, "commit", commit)]


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
