"""Jitter that a seed decides: Toxiproxy's own is drawn where no seed reaches, so the driver draws and renews.

Two latency toxics stand one behind the other: one of the least delay, which never changes, and one of the drawn rest.
Changing a toxic lets through at once what it holds back at that moment; because only the second one changes, every
byte is late by the least delay at any rate, and by at most `jitter_ms` more.
"""

from __future__ import annotations

import numpy as np

from testbed.containers.toxics import Direction, Latency
from testbed.containers.toxiproxy import Toxiproxy
from training.errors import ConfigurationError


class DrawnJitter:
    """Jitter on one direction of one proxy. `start`, then `renew` as often as the caller's timer says, then `stop`.

    A drawn delay holds until the next `renew`. Whole milliseconds. `drawn_ms` are the delays so far, for the journal;
    they follow from `generator` alone.
    """

    def __init__(
        self,
        toxiproxy: Toxiproxy,
        proxy: str,
        direction: Direction,
        name: str,
        least_ms: float,
        jitter_ms: float,
        generator: np.random.Generator,
    ) -> None:
        if least_ms < 0 or jitter_ms < 1:
            raise ConfigurationError(
                f"jitter needs delay_ms >= 0 and jitter_ms >= 1, not {least_ms:g} and {jitter_ms:g}"
            )
        self._toxiproxy = toxiproxy
        self._proxy = proxy
        self._direction: Direction = direction
        self._names = (f"{name}-least", f"{name}-drawn")
        self._least_ms = round(least_ms)
        self._jitter_ms = round(jitter_ms)
        self._generator = generator
        self.drawn_ms: list[int] = []

    def start(self) -> None:
        """Put both toxics on the proxy. Raises as `Toxiproxy.add` does."""
        least, drawn = self._names
        self._toxiproxy.check_room_for(self._proxy, self._least_ms + self._jitter_ms)
        if self._least_ms:
            self._toxiproxy.add(self._proxy, least, self._direction, Latency(self._least_ms))
        self._toxiproxy.add(self._proxy, drawn, self._direction, Latency(self._draw()))

    def renew(self) -> float:
        """Draw anew; returns the whole delay that now holds, in ms."""
        rest_ms = self._draw()
        self._toxiproxy.update(self._proxy, self._names[1], Latency(rest_ms))
        return float(self._least_ms + rest_ms)

    def stop(self) -> None:
        """Take both away; safe to call twice."""
        for name in self._names:
            self._toxiproxy.remove(self._proxy, name)

    def _draw(self) -> int:
        rest_ms = int(self._generator.integers(1, self._jitter_ms, endpoint=True))
        self.drawn_ms.append(self._least_ms + rest_ms)
        return rest_ms
