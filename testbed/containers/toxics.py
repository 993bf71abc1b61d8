"""What Toxiproxy can do to the bytes of one direction of a proxy, one dataclass per kind, checked before it gets there.

Units are ours; `attributes` has Toxiproxy's. Toxiproxy 2.12 takes a bandwidth or a slice of 0 and then recurses until
it dies, so every value is refused here that it would choke on, that would have no effect, or that it could keep only
roughly. Its own `jitter` and its random slices draw from a generator that no seed reaches: see `jitter.py`.

A toxic acts on bytes of TCP connections, never on calls: what shares a connection shares its fate.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import ClassVar, Literal

from training.errors import ConfigurationError

Direction = Literal["upstream", "downstream"]
"""upstream: from whoever dialled the proxy to whoever listens behind it. downstream: back."""

Attributes = dict[str, int]

DIRECTIONS: tuple[Direction, ...] = ("upstream", "downstream")
_RATE_ERROR_MAX = 0.1
_DURATION_MS_MAX = 24 * 3600 * 1000.0


@dataclass(frozen=True, slots=True)
class Latency:
    """Every byte arrives `delay_ms` later; the order stays. Whole milliseconds."""

    kind: ClassVar[str] = "latency"
    delay_ms: float

    def __post_init__(self) -> None:
        _in_range("latency", "delay_ms", self.delay_ms, 1, _DURATION_MS_MAX)

    @property
    def attributes(self) -> Attributes:
        return {"latency": round(self.delay_ms), "jitter": 0}


@dataclass(frozen=True, slots=True)
class Bandwidth:
    """So many KiB (1024 bytes) per second and no more. Toxiproxy counts whole units of 1000 bytes per second."""

    kind: ClassVar[str] = "bandwidth"
    kib_per_s: float

    def __post_init__(self) -> None:
        _in_range("bandwidth", "kib_per_s", self.kib_per_s, 0.9, 2**40)
        asked = self.kib_per_s * 1.024
        if abs(round(asked) - asked) > _RATE_ERROR_MAX * asked:
            nearest = " or ".join(f"{rate / 1.024:.3f}" for rate in (math.floor(asked), math.ceil(asked)) if rate)
            raise ConfigurationError(f"bandwidth: Toxiproxy cannot do kib_per_s {self.kib_per_s:g}; use {nearest}")

    @property
    def attributes(self) -> Attributes:
        return {"rate": round(self.kib_per_s * 1.024)}


@dataclass(frozen=True, slots=True)
class SlowClose:
    """The end of a connection is told `delay_ms` late. Acts on connections that end while it is there."""

    kind: ClassVar[str] = "slow_close"
    delay_ms: float

    def __post_init__(self) -> None:
        _in_range("slow_close", "delay_ms", self.delay_ms, 1, _DURATION_MS_MAX)

    @property
    def attributes(self) -> Attributes:
        return {"delay": round(self.delay_ms)}


@dataclass(frozen=True, slots=True)
class Timeout:
    """Bytes vanish. The connection is closed after `after_ms` without any; 0: never, a blackhole.

    A stream that keeps sending is not closed. When the toxic is taken away, connections that it blackholed are closed:
    bytes are missing in them.
    """

    kind: ClassVar[str] = "timeout"
    after_ms: float = 0.0

    def __post_init__(self) -> None:
        _in_range("timeout", "after_ms", self.after_ms, 0, _DURATION_MS_MAX)

    @property
    def attributes(self) -> Attributes:
        return {"timeout": round(self.after_ms)}


@dataclass(frozen=True, slots=True)
class ResetPeer:
    """A connection is broken `after_ms` after its next bytes.

    Only one that begins while the toxic is there gets a TCP reset; one that was open before ends in order but loses
    the bytes. To cut open connections for sure use `Toxiproxy.cut`.
    """

    kind: ClassVar[str] = "reset_peer"
    after_ms: float = 0.0

    def __post_init__(self) -> None:
        _in_range("reset_peer", "after_ms", self.after_ms, 0, _DURATION_MS_MAX)

    @property
    def attributes(self) -> Attributes:
        return {"timeout": round(self.after_ms)}


@dataclass(frozen=True, slots=True)
class LimitData:
    """A connection is closed after this many bytes, counted from when the toxic came."""

    kind: ClassVar[str] = "limit_data"
    limit_bytes: int

    def __post_init__(self) -> None:
        _in_range("limit_data", "limit_bytes", self.limit_bytes, 1, 2**62)

    @property
    def attributes(self) -> Attributes:
        return {"bytes": self.limit_bytes}


@dataclass(frozen=True, slots=True)
class Slicer:
    """Bytes go out in slices of about `average_bytes`, `delay_us` apart. With a variation the sizes are no seed's."""

    kind: ClassVar[str] = "slicer"
    average_bytes: int
    delay_us: int = 0
    variation_bytes: int = 0

    def __post_init__(self) -> None:
        _in_range("slicer", "average_bytes", self.average_bytes, 1, 2**31 - 1)
        _in_range("slicer", "variation_bytes", self.variation_bytes, 0, self.average_bytes - 1)
        _in_range("slicer", "delay_us", self.delay_us, 0, 2**31 - 1)

    @property
    def attributes(self) -> Attributes:
        return {
            "average_size": self.average_bytes,
            "size_variation": self.variation_bytes,
            "delay": self.delay_us,
        }


Toxic = Latency | Bandwidth | SlowClose | Timeout | ResetPeer | LimitData | Slicer


def check_round_trip(total_ms: float, ping_ms: float, proxy: str) -> None:
    """Refuse latencies that gRPC's keepalive takes for a dead peer: its ping waits `ping_ms` for the way and back."""
    if total_ms >= ping_ms:
        raise ConfigurationError(
            f"latencies on {proxy} would add up to {total_ms:g} ms both ways; from {ping_ms:g} ms on, gRPC's keepalive"
            " breaks a healthy link (use a partition, or a longer ping_ms)"
        )


def _in_range(kind: str, name: str, value: float, least: float, most: float) -> None:
    if not (math.isfinite(value) and least <= value <= most):
        raise ConfigurationError(f"{kind}: {name} {value:g} is not within {least:g} and {most:g}")
