"""Roles as processes of this machine: they listen on loopback, and get real signals."""

from __future__ import annotations

from collections.abc import Mapping

from chaos.actions import ApplyLinkFault
from services.shell.driver_link import LinksSeen
from testbed.engines.base import RunPlan
from testbed.engines.local_cast import command, environment, write_settings
from testbed.engines.place import Ears
from testbed.engines.process import ProcessGroup
from testbed.run_folder import RunFolder


class LocalPlace:
    """A `Place`."""

    def __init__(self, plan: RunPlan, folder: RunFolder) -> None:
        self._plan = plan
        self._folder = folder
        self._settings = write_settings(plan, folder)
        self._environment = environment(plan)
        self._group: ProcessGroup | None = None

    @property
    def driver_listen(self) -> str:
        return "127.0.0.1:0"

    @property
    def running(self) -> Mapping[str, bool]:
        return {role: process.suspended for role, process in self._group.live.items()} if self._group else {}

    async def open(self, ears: Ears) -> None:
        self._group = ProcessGroup(ears.exited)

    def start(self, role: str, launch: int, driver: str) -> None:
        line = command(role, launch, self._plan, self._folder, driver, self._settings)
        self._opened.start(role, launch, line, self._environment, self._folder.log_path(role, launch))

    def kill(self, role: str) -> None:
        self._opened.kill(role)

    def suspend(self, role: str) -> None:
        self._opened.suspend(role)

    def resume(self, role: str) -> None:
        self._opened.resume(role)

    def from_here(self, role: str, address: str) -> str:
        return address

    def seen(self, role: str, report: LinksSeen) -> None:
        """Nobody asked for it here."""

    def apply(self, fault: ApplyLinkFault) -> None:
        raise TypeError(f"engine local has no way to carry out {fault!r}")

    def undo(self, fault: str) -> None:
        raise TypeError(f"engine local has no way to undo {fault}")

    async def close(self) -> None:
        if self._group is not None:
            await self._group.close()

    @property
    def _opened(self) -> ProcessGroup:
        assert self._group is not None, "the place is not open"
        return self._group
