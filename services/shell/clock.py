"""The role's clock: monotonic milliseconds that can be frozen, and the timers that go by it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable


class RoleClock:
    """Time and timers of one role. Never falls; stands still between `freeze` and `thaw`.

    `fire(name)` is called in the loop, once per timer, no earlier than asked.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop, fire: Callable[[str], None]) -> None:
        self._loop = loop
        self._fire = fire
        self._origin_s = time.monotonic()
        self._frozen_at_ms: float | None = None
        self._due_ms: dict[str, float] = {}
        self._handles: dict[str, asyncio.TimerHandle] = {}

    def now_ms(self) -> float:
        """Milliseconds of role time since the clock was made."""
        if self._frozen_at_ms is not None:
            return self._frozen_at_ms
        return (time.monotonic() - self._origin_s) * 1000.0

    def set_timer(self, name: str, after_ms: float) -> None:
        """Fire `name` after so much role time; replaces the timer of that name."""
        self.cancel_timer(name)
        self._due_ms[name] = self.now_ms() + after_ms
        if self._frozen_at_ms is None:
            self._start(name)

    def cancel_timer(self, name: str) -> None:
        """Forget the timer, if there is one."""
        self._due_ms.pop(name, None)
        handle = self._handles.pop(name, None)
        if handle is not None:
            handle.cancel()

    def freeze(self) -> None:
        """Stand still. Doing it twice is doing it once."""
        if self._frozen_at_ms is None:
            self._frozen_at_ms = self.now_ms()
            self._stop_handles()

    def thaw(self) -> None:
        """Go on from where the clock stood."""
        if self._frozen_at_ms is not None:
            self._origin_s = time.monotonic() - self._frozen_at_ms / 1000.0
            self._frozen_at_ms = None
            for name in list(self._due_ms):
                self._start(name)

    def close(self) -> None:
        """Cancel everything."""
        self._due_ms.clear()
        self._stop_handles()

    def _start(self, name: str) -> None:
        delay_s = max(0.0, (self._due_ms[name] - self.now_ms()) / 1000.0)
        self._handles[name] = self._loop.call_later(delay_s, self._ring, name)

    def _ring(self, name: str) -> None:
        if self._due_ms[name] > self.now_ms():  # the loop rounds to its clock's resolution
            self._start(name)
            return
        del self._due_ms[name], self._handles[name]
        self._fire(name)

    def _stop_handles(self) -> None:
        for handle in self._handles.values():
            handle.cancel()
        self._handles.clear()
