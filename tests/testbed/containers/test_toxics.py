"""Values that Toxiproxy would choke on, that do nothing or that keepalive does not bear never reach it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from testbed.containers.toxics import (
    Bandwidth,
    Latency,
    LimitData,
    ResetPeer,
    Slicer,
    SlowClose,
    Timeout,
    Toxic,
    check_round_trip,
)
from training.errors import ConfigurationError

REFUSED: dict[str, Callable[[], Toxic]] = {
    "no bandwidth": lambda: Bandwidth(0),
    "negative bandwidth": lambda: Bandwidth(-1),
    "bandwidth that is no number": lambda: Bandwidth(float("nan")),
    "endless bandwidth": lambda: Bandwidth(float("inf")),
    "bandwidth below what it can": lambda: Bandwidth(0.5),
    "bandwidth between two that it can": lambda: Bandwidth(1.4),
    "slices of nothing": lambda: Slicer(0),
    "slices of less": lambda: Slicer(-1),
    "variation as large as the slice": lambda: Slicer(10, variation_bytes=10),
    "negative variation": lambda: Slicer(10, variation_bytes=-1),
    "negative pause": lambda: Slicer(10, delay_us=-1),
    "latency without effect": lambda: Latency(0.4),
    "negative latency": lambda: Latency(-5),
    "latency of more than a day": lambda: Latency(1e12),
    "close without delay": lambda: SlowClose(0),
    "negative timeout": lambda: Timeout(-1),
    "negative reset": lambda: ResetPeer(-1),
    "limit of nothing": lambda: LimitData(0),
}


@pytest.mark.parametrize("make", REFUSED.values(), ids=REFUSED)
def test_refused_before_it_gets_there(make: Callable[[], Toxic]) -> None:
    with pytest.raises(ConfigurationError, match=r"Toxiproxy cannot do|is not within"):
        make()


def test_units_are_turned_into_toxiproxys() -> None:
    assert Latency(100.4).attributes == {"latency": 100, "jitter": 0}
    assert Bandwidth(1000).attributes == {"rate": 1024}
    assert Slicer(10, delay_us=5, variation_bytes=2).attributes == {
        "average_size": 10,
        "size_variation": 2,
        "delay": 5,
    }
    assert Timeout().attributes == {"timeout": 0}


def test_a_bandwidth_in_between_is_refused_with_what_is_possible() -> None:
    with pytest.raises(ConfigurationError, match=r"use 0\.977 or 1\.953"):
        Bandwidth(1.4)


def test_latency_stays_below_keepalive() -> None:
    check_round_trip(9999, 10_000, "a>b")
    with pytest.raises(ConfigurationError, match="keepalive breaks a healthy link"):
        check_round_trip(10_000, 10_000, "a>b")
