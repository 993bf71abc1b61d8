"""AdamW equals an element-by-element replay in plain Python floats, bit by bit; and both optimizers cut and merge."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from training.adamw import AdamWConfig, AdamWState, apply_adamw, power, start_adamw
from training.config import OptimizerConfig
from training.errors import ConfigurationError, ContractError
from training.optimizer import apply_sgd
from training.optimizers import OptimizerSettings, OptimizerState, moment_names, start, update


def replay(config: AdamWConfig, p: float, m: float, v: float, g: float, count: int) -> tuple[float, float, float]:
    """One element, one update, in the documented order."""
    m = (config.beta1 * m) + ((1 - config.beta1) * g)
    v = (config.beta2 * v) + ((1 - config.beta2) * (g * g))
    c1, c2 = 1 - power(config.beta1, count), 1 - power(config.beta2, count)
    keep = 1 - config.learning_rate * config.weight_decay
    p = (keep * p) - (config.learning_rate * ((m / c1) / (math.sqrt(v / c2) + config.epsilon)))
    return p, m, v


@pytest.mark.parametrize("config", [AdamWConfig(), AdamWConfig(0.1, 0.0, 0.0, 0.0, 1e-3), AdamWConfig(1e-4, 0.3)])
def test_bitwise_equal_to_a_scalar_replay(config: AdamWConfig) -> None:
    generator = np.random.default_rng(0)
    parameters, state = generator.normal(size=33), start_adamw(33)
    plain = [(p, 0.0, 0.0) for p in parameters.tolist()]
    for count in range(1, 41):
        gradient = generator.normal(size=33) * 10.0 ** generator.integers(-8, 8, size=33)
        gradient[:3] = (0.0, -0.0, 5e-324)
        parameters, state = apply_adamw(config, parameters, state, gradient)
        plain = [replay(config, *element, g, count) for element, g in zip(plain, gradient.tolist(), strict=True)]
        assert state.step_count == count
        for found, expected in zip((parameters, state.first, state.second), zip(*plain, strict=True), strict=True):
            assert found.tobytes() == np.array(expected).tobytes()


def test_by_hand() -> None:
    """The first update moves by the learning rate against the gradient's sign, whatever its size, after the decay."""
    config = AdamWConfig(0.5, 0.1, epsilon=1e-300)
    parameters, state = apply_adamw(config, np.array([2.0, 2.0, 0.0]), start_adamw(3), np.array([1e-9, -3.0, 0.0]))
    np.testing.assert_allclose(parameters, [1.9 - 0.5, 1.9 + 0.5, 0.0], rtol=1e-14)
    np.testing.assert_allclose(state.first, [1e-10, -0.3, 0.0], rtol=1e-14)
    np.testing.assert_allclose(state.second, [1e-21, 9e-3, 0.0], rtol=1e-12)


def test_the_step_count_matters() -> None:
    parameters, gradient = np.ones(4), np.full(4, 0.1)
    state = AdamWState(np.full(4, 0.2), np.full(4, 0.3), 7)
    lost = AdamWState(state.first, state.second, 0)
    kept = apply_adamw(AdamWConfig(), parameters, state, gradient)[0]
    assert (kept != apply_adamw(AdamWConfig(), parameters, lost, gradient)[0]).all()


def test_power_multiplies_only() -> None:
    assert [power(0.9, exponent) for exponent in range(3)] == [1.0, 0.9, 0.9 * 0.9]
    assert power(0.9, 3) == 0.9 * (0.9 * 0.9)
    assert power(0.0, 0) == 1.0
    assert power(0.0, 5) == 0.0
    for exponent in (10, 1000, 12345):
        assert power(0.999, exponent) == pytest.approx(float(Fraction(0.999) ** exponent), rel=1e-13)


def test_arguments_are_left_alone() -> None:
    arrays = [np.full(3, value) for value in (1.0, 2.0, 3.0, 4.0)]
    for array in arrays:
        array.setflags(write=False)
    apply_adamw(AdamWConfig(), arrays[0], AdamWState(arrays[1], arrays[2], 3), arrays[3])
    assert [array[0] for array in arrays] == [1.0, 2.0, 3.0, 4.0]


def test_kind_10_mismatch_is_refused() -> None:
    good = np.zeros(5)
    wrong: list[Any] = [np.zeros(4), np.zeros(5, dtype=np.float32), np.zeros((5, 1))]
    for bad in wrong:
        for parameters, first, second, gradient in (
            (bad, good, good, good),
            (good, bad, good, good),
            (good, good, bad, good),
            (good, good, good, bad),
        ):
            with pytest.raises(ContractError):
                apply_adamw(AdamWConfig(), parameters, AdamWState(first, second, 0), gradient)
    with pytest.raises(ContractError, match="starts at 0"):
        apply_adamw(AdamWConfig(), good, AdamWState(good, good, -1), good)


def test_settings_that_cannot_be_are_refused() -> None:
    for settings in (
        {"learning_rate": 0.0},
        {"learning_rate": math.nan},
        {"learning_rate": True},
        {"learning_rate": "1"},
        {"weight_decay": -1e-9},
        {"beta1": 1.0},
        {"beta1": -0.1},
        {"beta2": math.inf},
        {"epsilon": 0.0},
    ):
        with pytest.raises(ConfigurationError, match="optimizer"):
            AdamWConfig(**settings)


@pytest.mark.parametrize("settings", [OptimizerConfig(0.1, 0.9), AdamWConfig()])
def test_a_shards_update_is_its_part_of_the_central_one(settings: OptimizerSettings) -> None:
    generator = np.random.default_rng(1)
    whole = generator.normal(size=40)
    parts = [whole[:13].copy(), whole[13:].copy()]
    state, states = start(settings, 40), [start(settings, 13), start(settings, 27)]
    for _ in range(10):
        gradient = generator.normal(size=40)
        whole, state = update(settings, whole, state, gradient)
        for index, own in enumerate((gradient[:13], gradient[13:])):
            parts[index], states[index] = update(settings, parts[index], states[index], own)
    assert np.concatenate(parts).tobytes() == whole.tobytes()
    assert state.step_count == 10
    assert len(state.moments) == len(moment_names(settings))
    for index, moment in enumerate(state.moments):
        assert np.concatenate([part.moments[index] for part in states]).tobytes() == moment.tobytes()


def test_sgd_behind_the_common_function() -> None:
    config, parameters, gradient = OptimizerConfig(0.1, 0.9), np.ones(3), np.arange(3.0)
    expected, velocity = apply_sgd(config, parameters, np.zeros(3), gradient)
    found, state = update(config, parameters, start(config, 3), gradient)
    assert found.tobytes() == expected.tobytes()
    assert state.moments[0].tobytes() == velocity.tobytes()


def test_the_other_optimizers_state_is_refused() -> None:
    for settings, moments in ((AdamWConfig(), 1), (OptimizerConfig(0.1), 2)):
        with pytest.raises(ContractError, match="moments"):
            update(settings, np.zeros(3), OptimizerState((np.zeros(3),) * moments, 0), np.zeros(3))
