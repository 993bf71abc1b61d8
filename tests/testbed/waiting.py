"""Waiting for a condition, with a bound."""

from __future__ import annotations

import select
import time
from collections.abc import Callable


def wait_until(condition: Callable[[], bool], timeout_s: float) -> bool:
    """Whether the condition came true in time."""
    deadline = time.monotonic() + timeout_s
    while not condition():
        if time.monotonic() > deadline:
            return False
        select.select([], [], [], 0.02)
    return True
