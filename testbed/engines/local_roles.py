"""The roles of a local run as its driver handles them: launched, held, released, signalled, let go.

`LocalRoles` knows which launch of a role is the current one, keeps what each launch owes the verifier, and arms holds
when a role connects if it is not there yet. It decides nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any

from services.events import COORDINATOR, VERIFIER
from services.host import Hold
from services.shell.driver_link import DriverError, DriverServer
from testbed.engines.base import ProgressSink, RunPlan
from testbed.engines.evidence_ledger import EvidenceLedger
from testbed.engines.local_cast import command, environment, write_settings
from testbed.engines.process import OnExit, ProcessGroup
from testbed.run_folder import RunFolder


class LocalRoles:
    """Belongs to one asyncio loop. Duty of the caller: `await close()` on every way out."""

    def __init__(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink, log: Any, on_exit: OnExit) -> None:
        self._plan = plan
        self._folder = folder
        self._progress = progress
        self._log = log
        self._settings = write_settings(plan, folder)
        self._environment = environment(plan)
        self._group = ProcessGroup(on_exit)
        self._launches: dict[str, int] = {}
        self._holds: dict[str, list[Hold]] = {}  # to be armed when the role connects
        self._killed: dict[tuple[str, int], str] = {}
        self.server = DriverServer(plan.config.run_id, plan.token, log=log)
        self.ledger = EvidenceLedger()

    async def close(self) -> None:
        """Kill and reap whoever is left, then end the control links."""
        try:
            await self._group.close()
        finally:
            await self.server.stop()

    # ------------------------------------------------------------ what is known of them

    def launch_of(self, role: str) -> int:
        """The current launch of a role; 0 when it was never launched."""
        return self._launches.get(role, 0)

    def running(self) -> set[str]:
        """Roles whose process runs, stopped ones included."""
        return set(self._group.live)

    def why_killed(self, role: str, launch: int) -> str:
        """Why we killed that launch; empty when we did not."""
        return self._killed.get((role, launch), "")

    # ------------------------------------------------------------ what is done with them

    def launch(self, role: str) -> None:
        """Start the role's next launch."""
        launch = self.launch_of(role) + 1
        self._launches[role] = launch
        self.ledger.launched(role, launch)
        line = command(role, launch, self._plan, self._folder, self.server.address, self._settings)
        self._progress.role(role, launch, "starting")
        self._group.start(role, launch, line, self._environment, self._folder.log_path(role, launch))

    def kill(self, role: str, why: str, *, excused: bool) -> None:
        """SIGKILL. `excused`: a fault of the schedule wants it, so the end of its evidence may be missing."""
        launch = self.launch_of(role)
        self._killed[role, launch] = why
        if excused:
            self.ledger.excuse(role, launch, why)
        self._progress.role(role, launch, "killed")
        self._group.kill(role)

    def suspend(self, role: str) -> None:
        """SIGSTOP."""
        self._group.suspend(role)
        self._progress.role(role, self.launch_of(role), "stopped")

    def resume(self, role: str) -> None:
        """SIGCONT."""
        self._group.resume(role)
        self._progress.role(role, self.launch_of(role), "up")

    def resume_all(self) -> None:
        """SIGCONT to whoever is still stopped."""
        for role, process in self._group.live.items():
            if process.suspended:
                self.resume(role)

    async def arm(self, hold: Hold) -> None:
        """Now, when the role is there; else when it connects. Raises DriverError when it does not answer."""
        if hold.role in self.server.connected:
            await self.server.arm(hold)
        else:
            self._holds.setdefault(hold.role, []).append(hold)

    async def connected(self, role: str) -> None:
        """Arm what was to be armed when the role connects."""
        for hold in self._holds.pop(role, []):
            await self.server.arm(hold)

    def release(self, role: str, hold: str) -> None:
        """Let the role go on from a hold."""
        self._tell(role, lambda: self.server.release(role, hold))
        self._progress.role(role, self.launch_of(role), "up")

    def freeze_coordinator(self) -> None:
        """Its clock and timers stand still."""
        self._tell(COORDINATOR, lambda: self.server.freeze(COORDINATOR))

    def thaw_coordinator(self) -> None:
        """They go on."""
        self._tell(COORDINATOR, lambda: self.server.thaw(COORDINATOR))

    def ask_to_leave(self, roles: Collection[str], reason: str) -> None:
        """Ask the connected ones of these roles to flush what they recorded and exit."""
        for role in sorted(set(roles) & set(self.server.connected)):
            self._tell(role, lambda role=role: self.server.shutdown(role, reason))  # type: ignore[misc]

    def _tell(self, role: str, tell: Callable[[], None]) -> None:
        """Tell a connected role something; one that is dead or dying needs no telling."""
        try:
            tell()
        except DriverError as error:
            self._log.info("not told", of=role, why=str(error))


def all_but_verifier(roles: Collection[str]) -> set[str]:
    """Those who are done when the coordinator is; the verifier still has to judge."""
    return set(roles) - {VERIFIER}
