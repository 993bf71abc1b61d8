"""Roles as processes of this machine: they listen on loopback, and get real signals.

Where the schedule disturbs links, a Toxiproxy of our own stands between the roles as it does between containers; it
leads to wherever a role says that it listens. Otherwise they reach each other directly.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import Mapping

from chaos.actions import ApplyLinkFault
from chaos.fault_kinds.links import LinkFault
from chaos.scenario import Scenario, refusals
from services.shell.driver_link import LinksSeen
from testbed.containers.toxiproxy_process import HOW_TO_GET_ONE, ToxiproxyProcess, find_toxiproxy
from testbed.engines.base import EngineError, RunPlan
from testbed.engines.local_cast import command, environment, whole_cast, write_settings
from testbed.engines.place import Ears
from testbed.engines.process import ProcessGroup
from testbed.engines.proxied_links import ProxiedLinks, Waiting
from testbed.run_folder import RunFolder

_NOBODY = "127.0.0.1:1"  # where a proxy leads until its role listens somewhere
_READY_S = 10.0
_LOOK_S = 0.25


def refusals_here(scenario: Scenario, strategy: str) -> list[str]:
    """Why local processes cannot run it; faults of links they can where a Toxiproxy is found."""
    if not (refused := refusals(scenario, "local", strategy)):
        return []
    if find_toxiproxy(os.environ) is not None:
        return refusals(scenario, "local", strategy, toxiproxy=True)
    helps = refusals(scenario, "local", strategy, toxiproxy=True) != refused
    return [*refused, HOW_TO_GET_ONE] if helps else refused


class LocalPlace:
    """A `Place`."""

    def __init__(self, plan: RunPlan, folder: RunFolder, *, proxied: bool = False) -> None:
        """`proxied`: a Toxiproxy stands between the roles although nothing disturbs their links."""
        self._plan = plan
        self._folder = folder
        self._settings = write_settings(plan, folder)
        self._environment = environment(plan.token)
        self._proxied = proxied or any(isinstance(fault, LinkFault) for fault in plan.scenario.faults)
        self._group: ProcessGroup | None = None
        self._server: ToxiproxyProcess | None = None
        self._links: ProxiedLinks | None = None
        self._guard: asyncio.Task[None] | None = None

    @property
    def driver_listen(self) -> str:
        return "127.0.0.1:0"

    @property
    def running(self) -> Mapping[str, bool]:
        return {role: process.suspended for role, process in self._group.live.items()} if self._group else {}

    async def open(self, ears: Ears) -> None:
        self._group = ProcessGroup(ears.exited)
        if self._proxied:
            loop = asyncio.get_running_loop()
            await loop.run_in_executor(None, self._open_links, loop, ears)
            self._guard = loop.create_task(self._tell_its_end(ears))

    def start(self, role: str, launch: int, driver: str) -> None:
        line = command(role, launch, self._plan, self._folder, driver, self._settings)
        if self._links is not None:
            line += ["--measure-links", *(f"--via={to}={at}" for to, at in self._links.via(role).items())]
        self._opened.start(role, launch, line, self._environment, self._folder.log_path(role, launch))

    def kill(self, role: str) -> None:
        self._opened.kill(role)

    def terminate(self, role: str) -> None:
        self._opened.terminate(role)

    def suspend(self, role: str) -> None:
        self._opened.suspend(role)

    def resume(self, role: str) -> None:
        self._opened.resume(role)

    async def arrived(self, role: str, address: str) -> None:
        if self._links is not None:
            await self._links.lead_to(role, address)

    def regrouped(self, generation: int) -> None:
        """Nobody asks for it here."""

    def from_here(self, role: str, address: str) -> str:
        return address

    def seen(self, role: str, report: LinksSeen) -> None:
        if self._links is not None:
            self._links.seen(role, report)

    async def apply(self, fault: ApplyLinkFault) -> None:
        assert self._links is not None, f"engine local has no way to carry out {fault!r}"
        await self._links.apply(fault)

    async def undo(self, fault: str) -> None:
        assert self._links is not None, f"engine local has no way to undo {fault}"
        await self._links.undo(fault)

    async def close(self) -> None:
        if self._guard is not None:
            self._guard.cancel()
        try:
            if self._links is not None:
                await self._links.close()
            if self._group is not None:
                await self._group.close()
        finally:
            if self._server is not None:
                await asyncio.get_running_loop().run_in_executor(None, self._server.stop)

    # ------------------------------------------------------------ Toxiproxy

    def _open_links(self, loop: asyncio.AbstractEventLoop, ears: Ears) -> None:
        binary = find_toxiproxy(os.environ)
        if binary is None:
            raise EngineError(HOW_TO_GET_ONE)
        self._server = ToxiproxyProcess.start(binary, self._folder.logs / "toxiproxy.1.log")
        self._links = ProxiedLinks(self._server.address, self._plan.config.seed, loop, ears)
        self._links.open(
            whole_cast(self._plan),
            listen_at=lambda _: "127.0.0.1:0",
            leads_to=lambda _: _NOBODY,
            wait=Waiting(_READY_S, self._server.wait_gone),
        )

    async def _tell_its_end(self, ears: Ears) -> None:
        assert self._server is not None
        while not (why := self._server.why_gone()):
            await asyncio.sleep(_LOOK_S)
        ears.failed(EngineError(why))

    @property
    def _opened(self) -> ProcessGroup:
        assert self._group is not None, "the place is not open"
        return self._group
