"""A gradient that is not finite is recorded whole, however large the model: nothing else shows that a skip is right."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from services.events import COORDINATOR, Computed, Received, Record
from services.jobs import Gradient
from services.messages import Welcome
from services.records import Contributed
from services.roles.worker import Worker
from tests.services.roles.coordinator_bench import Bench


@pytest.mark.parametrize("value", [1.0, np.nan, -np.inf])
def test_what_is_not_finite_is_recorded_whole(value: float) -> None:
    config = replace(Bench().config, evidence_gradient_elements=0)
    worker = Worker(1, 1)
    worker.handle(0.0, Received(COORDINATOR, 1, Welcome(1, 1, config.to_json(), 0)))
    worker._computing = (1, (4, 5))
    gradient = Gradient((4, 5), np.array([0.0, value]), "d" * 64, 1.0, bool(np.isfinite(value)))
    effects = worker.handle(0.0, Computed("gradient 1 1 1", gradient))
    (told,) = [one.fact for one in effects if isinstance(one, Record) and isinstance(one.fact, Contributed)]
    assert (told.gradient is None) == bool(np.isfinite(value))
