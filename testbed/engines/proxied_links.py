"""The links of a run's roles, each through a proxy of its own in one Toxiproxy, and the faults on them.

A proxy belongs to a directed pair: who dials, and whom. Two workers dial each other for what each sends itself, so a
direction between them is a proxy; where one side alone dials (to the coordinator, to the server), the directions of a
link are the two directions of one proxy.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from chaos.actions import ApplyLinkFault
from chaos.fault_kinds.roles import AddWorker
from services.events import VERIFIER
from services.shell.switchboard import dials
from testbed.containers.toxics import Direction
from testbed.containers.toxiproxy import Toxiproxy
from testbed.engines.base import RunPlan
from testbed.engines.local_cast import first_cast
from testbed.engines.place import Ears

_FIRST_PORT = 20000


class ProxiedLinks:
    """`host` is where Toxiproxy is for the roles, `api` where its interface is for us."""

    def __init__(self, api: str, host: str, loop: asyncio.AbstractEventLoop, ears: Ears) -> None:
        self.toxiproxy = Toxiproxy(api)
        self._host = host
        self._loop = loop
        self._ears = ears
        self._via: dict[str, dict[str, str]] = {}

    def open(self, roles: tuple[str, ...], port: int, deadline_s: float, pause: Callable[[float], object]) -> None:
        """Make a proxy for every link between these roles, each of which listens at its name. Blocks."""
        self.toxiproxy.wait_ready(deadline_s, lambda seconds: void(pause(seconds)))
        for number, (source, target) in enumerate(proxied_links(roles)):
            listen = f"{self._host}:{_FIRST_PORT + number}"
            self.toxiproxy.create(proxy_name(source, target), f"{target}:{port}", listen)
            self._via.setdefault(source, {})[target] = listen

    def via(self, role: str) -> dict[str, str]:
        """Whom the role dials -> where."""
        return dict(self._via.get(role, {}))

    def apply(self, fault: ApplyLinkFault) -> None:
        """Put a fault on a link."""
        raise NotImplementedError

    def undo(self, fault: str) -> None:
        """Take a fault off every link that it is on."""
        raise NotImplementedError

    async def close(self) -> None:
        """Heal nothing: Toxiproxy goes with the run."""


def void(_: object) -> None:
    """Nothing comes back."""


def whole_cast(plan: RunPlan) -> tuple[str, ...]:
    """Every role that may live in this run, those that a fault adds included."""
    added = (fault.target for fault in plan.scenario.faults if isinstance(fault, AddWorker))
    return tuple(dict.fromkeys((*first_cast(plan), *added)))


def proxied_links(roles: tuple[str, ...]) -> list[tuple[str, str]]:
    """(who dials, whom) for every link that goes through Toxiproxy, ascending."""
    others = sorted(set(roles) - {VERIFIER})
    return [(source, target) for source in others for target in others if source != target and dials(source, target)]


def proxy_of(source: str, target: str) -> tuple[str, Direction]:
    """The proxy and the direction of it that carry what `source` sends to `target`."""
    if dials(source, target):
        return proxy_name(source, target), "upstream"
    return proxy_name(target, source), "downstream"


def proxy_name(source: str, target: str) -> str:
    """ "worker-1>worker-2": the one who dials first."""
    return f"{source}>{target}"
