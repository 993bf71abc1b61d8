"""The driver's watchdog ends a run that stands still, at whatever time it began to: no rest of rounding keeps it up."""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from chaos.actions import AbortRun, Action, DriverSetTimer, DriverTimer, RoleLaunched, RunBegan
from chaos.driver import WATCHDOG, Driver
from chaos.scenario import Scenario


def due_ms(now_ms: float, actions: Iterable[Action]) -> float:
    """When the watchdog is to ring next."""
    (timer,) = [action for action in actions if isinstance(action, DriverSetTimer) and action.name == WATCHDOG]
    return now_ms + timer.after_ms


def rings_until_aborted(progress_ms: float) -> int:
    driver = Driver(Scenario(name="still", title="Something happens once, then nothing any more"), "ring")
    now_ms = due_ms(0.0, driver.handle(0.0, RunBegan()))
    driver.handle(progress_ms, RoleLaunched("worker-1", 1))
    for rings in range(1, 10):
        actions = driver.handle(now_ms, DriverTimer(WATCHDOG))
        if any(isinstance(action, AbortRun) for action in actions):
            return rings
        now_ms = due_ms(now_ms, actions)
    raise AssertionError(f"still waiting at {now_ms!r} ms; what happened last was at {progress_ms!r} ms")


def test_it_ends_whatever_the_time_is() -> None:
    generator = np.random.Generator(np.random.PCG64(7))
    for progress_ms in generator.uniform(0.1, 30_000.0, 2000).tolist():
        assert rings_until_aborted(progress_ms) <= 3
