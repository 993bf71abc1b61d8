"""Addresses of relaunched roles: never the one that it had, another's where one is free."""

from __future__ import annotations

from testbed.containers.addresses import Addresses


def test_a_relaunch_gets_another_address_and_never_its_own() -> None:
    addresses = Addresses("172.30.0.0/16")
    first = addresses.next_of("worker-1")
    addresses.gone("worker-1")
    again = addresses.next_of("worker-1")
    assert (first, again) == ("172.30.0.16", "172.30.0.17")


def test_two_that_died_together_change_places() -> None:
    addresses = Addresses("172.30.0.0/16")
    one, two = addresses.next_of("worker-1"), addresses.next_of("worker-2")
    addresses.gone("worker-1")
    addresses.gone("worker-2")
    assert (addresses.next_of("worker-2"), addresses.next_of("worker-1")) == (one, two)
    assert addresses.next_of("worker-3") not in (one, two)
