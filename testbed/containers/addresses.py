"""Addresses of the roles' containers: a relaunch never gets the one that it had, but another role's if one is free.

So whoever finds a role by an address that it remembers finds nobody, or somebody else, in every scenario with a
relaunch. Docker lets containers ask for addresses only on a network whose subnet was given, so the one that it picks
is read, and the network is made again with it.
"""

from __future__ import annotations

import ipaddress

from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import DockerRefused
from testbed.containers.labels import Ownership

_FIRST = 16  # below are the gateway and Toxiproxy, which take what Docker gives
_TRIES = 5


def create_with_own_subnet(docker: Docker, name: str, whose: Ownership) -> Addresses:
    """An internal network that Docker found room for, and the addresses on it. Raises DockerError."""
    for tries_left in reversed(range(_TRIES)):
        docker.create_network(name, whose, internal=True)
        subnet, gateway = docker.subnet(name), docker.gateway(name)
        docker.remove_network(name)
        try:
            docker.create_network(name, whose, internal=True, subnet=subnet, gateway=gateway)
        except DockerRefused:  # another testbed was faster
            if not tries_left:
                raise
        else:
            return Addresses(subnet)
    raise AssertionError("the last try raises")


class Addresses:
    """Belongs to one thread."""

    def __init__(self, subnet: str) -> None:
        self._network = ipaddress.ip_network(subnet)
        self._given = _FIRST
        self._left: list[tuple[str, str]] = []  # address, whose it was; the oldest first
        self._now: dict[str, str] = {}

    def next_of(self, role: str) -> str:
        """For a new launch of the role."""
        others = [entry for entry in self._left if entry[1] != role]
        if others:
            self._left.remove(others[0])
            address = others[0][0]
        else:
            address = str(self._network[self._given])
            self._given += 1
        self._now[role] = address
        return address

    def gone(self, role: str) -> None:
        """The role's launch has ended: its address is free."""
        if (address := self._now.pop(role, "")) != "":
            self._left.append((address, role))
