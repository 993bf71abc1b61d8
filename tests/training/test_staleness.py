"""Delays are drawn from their key alone; decay by hand."""

from __future__ import annotations

import math
from collections import Counter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from training.errors import ConfigurationError, ContractError
from training.staleness import DecayConfig, DelayConfig, decay_weight, delay_ticks


def test_decay_by_hand() -> None:
    weights = [decay_weight(age, 0.5, 0.25) for age in range(5)]
    assert weights == [1.0, math.exp(-0.5), math.exp(-1.0), 0.25, 0.25]
    assert decay_weight(10**9, 1.0, 0.0) == 0.0
    assert decay_weight(7, 0.0, 0.0) == 1.0
    with pytest.raises(ContractError, match="age -1"):
        decay_weight(-1, 0.5, 0.25)


@given(st.integers(0, 50), st.floats(0, 5), st.floats(0, 1))
def test_decay_falls_with_age_and_stops_at_the_floor(age: int, rate: float, floor: float) -> None:
    weight = decay_weight(age, rate, floor)
    assert floor <= decay_weight(age + 1, rate, floor) <= weight <= 1.0


def test_without_jitter_every_delay_is_the_base() -> None:
    for base in (0, 1, 2):
        assert {delay_ticks(DelayConfig(base), 0, step, 0, 0, "forward") for step in range(50)} == {base}


def test_jitter_is_uniform_and_never_below_zero() -> None:
    drawn = Counter(delay_ticks(DelayConfig(1, 2), 5, step, 0, 1, "backward") for step in range(5000))
    assert set(drawn) == {0, 1, 2, 3}
    assert drawn[0] == pytest.approx(2000, abs=150)  # -1 and 0 both end at 0
    assert all(drawn[delay] == pytest.approx(1000, abs=120) for delay in (1, 2, 3))


def test_a_boundary_held_back_is_overtaken() -> None:
    config = DelayConfig(1, 1, 0.5)
    drawn = [delay_ticks(config, 5, step, 0, 0, "forward") for step in range(4000)]
    held = sum(delay > 2 for delay in drawn)
    assert held == pytest.approx(2000, abs=150)
    assert set(drawn) == {0, 1, 2, 3, 4, 5}
    assert max(drawn) == config.longest_ticks
    assert {delay_ticks(DelayConfig(2, 0, 1.0), 0, step, 0, 0, "forward") for step in range(9)} == {5}


def test_the_draw_is_the_documented_one() -> None:
    """Computed once by hand from SHA-256 of `gradstorm delay 1 7 3 2 1 forward`, which begins a88e6487, and so on."""
    config = DelayConfig(10, 9, 0.5)
    assert [delay_ticks(config, 7, step, 2, 1, "forward") for step in (3, 4, 5, 6)] == [33, 14, 16, 38]


@given(st.integers(0, 2**70), st.integers(1, 10**6), st.integers(0, 99), st.integers(0, 7), st.integers(0, 9))
def test_same_key_same_delay(seed: int, step: int, micro_batch: int, cut: int, jitter: int) -> None:
    config = DelayConfig(3, jitter, 0.3)
    delay = delay_ticks(config, seed, step, micro_batch, cut, "forward")
    assert delay == delay_ticks(config, seed, step, micro_batch, cut, "forward")
    assert 0 <= delay <= config.longest_ticks


def test_every_part_of_the_key_counts() -> None:
    config = DelayConfig(500, 500)
    keys: list[Any] = [(0, 1, 0, 0, "forward"), (1, 1, 0, 0, "forward"), (0, 2, 0, 0, "forward")]
    keys += [(0, 1, 1, 0, "forward"), (0, 1, 0, 1, "forward"), (0, 1, 0, 0, "backward"), (0, 11, 0, 0, "forward")]
    assert len({delay_ticks(config, *key) for key in keys}) == len(keys)


def test_settings_that_cannot_be_are_refused() -> None:
    wrong: list[Any] = [{"base_ticks": -1}, {"jitter_ticks": 0.5}, {"base_ticks": True}, {"reorder_probability": 1.1}]
    for settings in [*wrong, {"reorder_probability": math.nan}, {"reorder_probability": -0.1}]:
        with pytest.raises(ConfigurationError, match="delay"):
            DelayConfig(**settings)
    for settings in ({"rate": -1.0}, {"floor": 1.5}, {"floor": -0.1}, {"rate": math.inf}, {"floor": "1"}):
        with pytest.raises(ConfigurationError, match="decay"):
            DecayConfig(**settings)
    with pytest.raises(ContractError, match="direction"):
        delay_ticks(DelayConfig(1), 0, 1, 0, 0, "sideways")  # type: ignore[arg-type]
