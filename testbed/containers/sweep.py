"""Removing what Gradstorm left on a daemon, by label and by nothing else.

sweep(docker, left_over_of(this_owner(), now_unix_s))     # at the start: what killed drivers left
sweep(docker, of_run(run_id))                             # on every way out: what this run started
sweep(docker, of_owner(this_owner()))                     # `clean`: all that is this owner's
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from testbed.containers.docker_adapter import Docker
from testbed.containers.docker_errors import DockerError
from testbed.containers.labels import Ownership, is_alive, why_left_over

Choice = Callable[[Ownership], str]
"""Why a thing is to be removed; empty when it is not."""


Removed = tuple[tuple[str, str], ...]
"""(name, reason) of each thing."""


@dataclass(frozen=True, slots=True)
class Swept:
    """What was removed, in this order: a network goes when nothing hangs on it any more."""

    containers: Removed = ()
    networks: Removed = ()
    volumes: Removed = ()

    def __bool__(self) -> bool:
        return bool(self.containers or self.networks or self.volumes)

    def lines(self) -> list[str]:
        """For people, one line each."""
        kinds = (("container", self.containers), ("network", self.networks), ("volume", self.volumes))
        return [f"removed {kind} {name}: {reason}" for kind, removed in kinds for name, reason in removed]


def of_run(run_id: str) -> Choice:
    return lambda whose: f"of run {run_id}" if whose.run_id == run_id else ""


def of_owner(owner: str) -> Choice:
    return lambda whose: f"of {owner}" if whose.owner == owner else ""


def left_over_of(owner: str, now_unix_s: float, alive: Callable[[str], bool | None] = is_alive) -> Choice:
    """Of this owner, and nobody answers for it any more."""
    return lambda whose: why_left_over(whose, now_unix_s, alive) if whose.owner == owner else ""


def sweep(docker: Docker, choose: Choice) -> Swept:
    """Remove what is chosen. Goes on past what cannot be removed and raises one DockerError that names it."""
    failed: list[str] = []
    owned = [(state.name, state.whose) for state in docker.containers() if state.whose is not None]
    containers = _removed(docker.remove, owned, choose, failed)
    networks = _removed(docker.remove_network, list(docker.networks().items()), choose, failed)
    volumes = _removed(docker.remove_volume, list(docker.volumes().items()), choose, failed)
    if failed:
        raise DockerError("could not remove " + "; ".join(failed))
    return Swept(containers, networks, volumes)


def _removed(
    remove: Callable[[str], None], things: list[tuple[str, Ownership]], choose: Choice, failed: list[str]
) -> Removed:
    removed = []
    for name, whose in things:
        reason = choose(whose)
        if not reason:
            continue
        try:
            remove(name)
        except DockerError as error:
            failed.append(f"{name}: {error}")
        else:
            removed.append((name, reason))
    return tuple(removed)
