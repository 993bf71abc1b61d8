"""The driver's watchdog ends a run that stands still, at whatever time it began to: no rest of rounding keeps it up."""

from __future__ import annotations

import numpy as np

from chaos.actions import AbortRun, DriverSetTimer, DriverTimer, RoleLaunched, RunBegan
from chaos.driver import WATCHDOG, Driver
from chaos.scenario import Scenario


def rings_until_aborted(began_ms: float) -> int:
    driver = Driver(Scenario(name="still", title="Nothing ever happens"), "ring")
    driver.handle(began_ms / 3.0, RunBegan())
    driver.handle(began_ms, RoleLaunched("worker-1", 1))
    now_ms = began_ms
    actions = driver.handle(now_ms, DriverTimer(WATCHDOG))
    for rings in range(1, 10):
        if any(isinstance(action, AbortRun) for action in actions):
            return rings
        (timer,) = [action for action in actions if isinstance(action, DriverSetTimer) and action.name == WATCHDOG]
        now_ms += timer.after_ms
        actions = driver.handle(now_ms, DriverTimer(WATCHDOG))
    raise AssertionError(f"still waiting at {now_ms!r} ms, begun at {began_ms!r} ms")


def test_it_ends_whatever_the_time_is() -> None:
    generator = np.random.Generator(np.random.PCG64(7))
    for began_ms in generator.uniform(0.1, 1000.0, 2000).tolist():
        assert rings_until_aborted(began_ms) <= 3
