"""SGD equals an element-by-element replay in plain Python floats, bit by bit."""

from __future__ import annotations

import numpy as np
import pytest

from training.config import OptimizerConfig
from training.errors import ContractError
from training.optimizer import apply_sgd


@pytest.mark.parametrize("momentum", [0.0, 0.9])
def test_bitwise_equal_to_a_scalar_replay(momentum: float) -> None:
    config = OptimizerConfig(0.07, momentum)
    generator = np.random.default_rng(0)
    parameters, velocity = generator.normal(size=33), np.zeros(33)
    plain_parameters, plain_velocity = parameters.tolist(), velocity.tolist()
    for _ in range(20):
        gradient = generator.normal(size=33)
        gradient[:2] = (0.0, -0.0)
        parameters, velocity = apply_sgd(config, parameters, velocity, gradient)
        plain_velocity = [momentum * v + g for v, g in zip(plain_velocity, gradient.tolist(), strict=True)]
        plain_parameters = [p - 0.07 * v for p, v in zip(plain_parameters, plain_velocity, strict=True)]
        assert velocity.tobytes() == np.array(plain_velocity).tobytes()
        assert parameters.tobytes() == np.array(plain_parameters).tobytes()
    if momentum == 0:
        np.testing.assert_array_equal(velocity, gradient)


def test_arguments_are_left_alone() -> None:
    arrays = [np.full(3, value) for value in (1.0, 2.0, 3.0)]
    for array in arrays:
        array.setflags(write=False)
    parameters, velocity = apply_sgd(OptimizerConfig(0.5, 0.5), *arrays)
    assert parameters.tolist() == [-1.0] * 3
    assert velocity.tolist() == [4.0] * 3
    assert [array[0] for array in arrays] == [1.0, 2.0, 3.0]


def test_kind_10_mismatch_is_refused() -> None:
    good = np.zeros(5)
    for bad in (np.zeros(4), np.zeros(5, dtype=np.float32), np.zeros((5, 1))):
        for arguments in ((good, bad, good), (good, good, bad), (bad, good, good)):
            with pytest.raises(ContractError):
                apply_sgd(OptimizerConfig(0.1), *arguments)
