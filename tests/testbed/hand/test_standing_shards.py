"""A testbed that stands may be one of shards: what it trains is sound, and what cannot be cut is refused."""

from __future__ import annotations

import pytest

from chaos.scenario import refusals
from testbed.hand.request import STEPS, standing_scenario
from training.errors import ConfigurationError


def test_it_trains_as_many_steps_as_there_can_be_in_so_many_shards() -> None:
    scenario = standing_scenario(3, "shards")
    assert (scenario.sharded, scenario.training.workers, scenario.training.steps) == (True, 3, STEPS)
    assert refusals(scenario, "containers", "shards", toxiproxy=True) == []


def test_more_shards_than_there_can_be_are_refused() -> None:
    with pytest.raises(ConfigurationError, match="9 shards; at most 8 are possible"):
        standing_scenario(9, "shards")
