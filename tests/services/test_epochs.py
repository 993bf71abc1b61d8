"""The verifier's own bookkeeping of samples agrees with the sampler, and survives what a faulty run commits."""

from __future__ import annotations

import random

import pytest

from services.epochs import Deck, Permutations, fresh_generator
from training.config import BatchConfig
from training.sampler import Sampler


@pytest.mark.parametrize("seed", range(12))
def test_deals_and_states_agree_with_the_sampler(seed: int) -> None:
    drawn = random.Random(seed)
    batch = BatchConfig(drawn.choice(["per_worker", "global"]), drawn.randint(1, 9))
    sampler = Sampler(drawn.randint(1, 60), seed)
    state = sampler.state().to_json()
    assert state["generator_at_epoch"] == fresh_generator(seed)
    permutations = Permutations(state)
    deck = Deck(permutations, state)
    for _ in range(40):
        members = sorted(drawn.sample(range(1, 9), drawn.randint(1, 5)))
        dealt = sampler.deal(members, batch)
        assert deck.deal(members, batch.mode, batch.size) == dealt
        assert deck.remaining_count == sampler.remaining_count
        ids = [sample for member in members if drawn.random() < 0.7 for sample in dealt[member]]
        sampler.commit(ids)
        assert deck.commit(ids) == []
        assert deck.epoch == sampler.epoch
        state = sampler.state().to_json()
        assert permutations.states(deck.epoch) == (state["generator_at_epoch"], state["generator"])
        if drawn.random() < 0.2:  # as a rollback or a resumed run does
            permutations = Permutations(state)
            deck = Deck(permutations, state)


def test_what_is_not_there_is_named() -> None:
    state = Sampler(10, 1).state().to_json()
    deck = Deck(Permutations(state), state)
    first = deck.remaining()[:3]
    assert deck.commit(first) == []
    assert deck.commit([first[0], 99]) == [first[0], 99]
    assert deck.remaining_count == 7


def test_an_id_twice_in_the_last_commit_of_an_epoch_is_named() -> None:
    state = Sampler(10, 1).state().to_json()
    deck = Deck(Permutations(state), state)
    deck.commit(deck.remaining()[:8])
    last = deck.remaining()
    assert deck.commit([*last, last[0]]) == [last[0]]
    assert (deck.epoch, deck.remaining_count) == (1, 10)


def test_an_epoch_that_is_abandoned_loses_what_remains() -> None:
    state = Sampler(10, 1).state().to_json()
    deck = Deck(Permutations(state), state)
    deck.commit(deck.remaining()[:4])
    assert len(deck.abandon(1)) == 6
    assert (deck.epoch, deck.remaining_count) == (1, 10)


def test_an_earlier_epoch_than_the_first_cannot_be_drawn() -> None:
    sampler = Sampler(3, 1)
    sampler.commit(sampler.remaining())
    with pytest.raises(ValueError, match="lies before"):
        Permutations(sampler.state().to_json()).of(0)
