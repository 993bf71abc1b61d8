"""Error feedback, diagnostic only: what is dropped is added to the next boundary."""

from __future__ import annotations

import math

import numpy as np
import pytest

from training.boundary_codec import WHY_UNSUPPORTED, ErrorFeedback, decode, encode
from training.errors import ConfigurationError, ContractError, NonFiniteError


def test_the_residual_is_carried() -> None:
    feedback = ErrorFeedback(50, 8)
    values = np.array([[4.0, 1.0]])
    first = decode(feedback.encode(values), 2)
    assert first.tolist() == [4.0, 0.0]
    second = decode(feedback.encode(np.array([[0.5, 1.0]])), 2)
    assert second.tolist() == [0.0, 2.0]
    third = feedback.encode(np.array([[0.0, 0.0]]))
    assert third == encode(np.array([0.5, 0.0]), 50, 8)


def test_a_refused_boundary_leaves_the_residual_alone() -> None:
    feedback = ErrorFeedback(50, 8)
    feedback.encode(np.array([4.0, 1.0]))
    with pytest.raises(NonFiniteError):
        feedback.encode(np.array([math.nan, 1.0]))
    with pytest.raises(ContractError, match="shape"):
        feedback.encode(np.zeros(3))
    assert feedback.encode(np.zeros(2)) == encode(np.array([0.0, 1.0]), 50, 8)


def test_settings_are_checked_and_the_reason_is_told() -> None:
    with pytest.raises(ConfigurationError):
        ErrorFeedback(0, 8)
    assert "independent batches" in WHY_UNSUPPORTED
