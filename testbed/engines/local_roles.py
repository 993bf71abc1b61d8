"""The roles of a run in a `Place` as its driver handles them: launched, held, released, signalled, let go.

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
from testbed.engines.place import Ears, Place


class LocalRoles:
    """Belongs to one asyncio loop. Duties of the caller: `open` first, `await close()` on every way out."""

    server: DriverServer  # there once `open` has returned

    def __init__(self, plan: RunPlan, place: Place, progress: ProgressSink, log: Any) -> None:
        self._plan = plan
        self._place = place
        self._progress = progress
        self._log = log
        self._launches: dict[str, int] = {}
        self._holds: dict[str, list[Hold]] = {}  # to be armed when the role connects
        self._killed: dict[tuple[str, int], str] = {}
        self.ledger = EvidenceLedger()

    async def open(self, ears: Ears) -> None:
        """Make the place, then listen for the roles."""
        await self._place.open(ears)
        config = self._plan.config
        self.server = DriverServer(config.run_id, self._plan.token, self._place.driver_listen, log=self._log)
        await self.server.start()

    async def close(self) -> None:
        """Kill and reap whoever is left, then end the control links."""
        try:
            await self._place.close()
        finally:
            if hasattr(self, "server"):
                await self.server.stop()

    # ------------------------------------------------------------ what is known of them

    def launch_of(self, role: str) -> int:
        """The current launch of a role; 0 when it was never launched."""
        return self._launches.get(role, 0)

    def running(self) -> set[str]:
        """Roles whose process runs, stopped ones included."""
        return set(self._place.running)

    def why_killed(self, role: str, launch: int) -> str:
        """Why we killed that launch; empty when we did not."""
        return self._killed.get((role, launch), "")

    # ------------------------------------------------------------ what is done with them

    def launch(self, role: str) -> None:
        """Start the role's next launch."""
        launch = self.launch_of(role) + 1
        self._launches[role] = launch
        self.ledger.launched(role, launch)
        self._progress.role(role, launch, "starting")
        self._place.start(role, launch, self.server.address)

    def kill(self, role: str, why: str, *, excused: bool, gently: bool = False) -> None:
        """SIGKILL, or SIGTERM. `excused`: a fault of the schedule wants it; the end of its evidence may be missing."""
        launch = self.launch_of(role)
        self._killed[role, launch] = why
        if excused:
            self.ledger.excuse(role, launch, why)
        self._progress.role(role, launch, "asked to end" if gently else "killed")
        if gently:
            self._place.terminate(role)
        else:
            self._place.kill(role)

    def suspend(self, role: str) -> None:
        """SIGSTOP."""
        self._place.suspend(role)
        self._progress.role(role, self.launch_of(role), "stopped")

    def resume(self, role: str) -> None:
        """SIGCONT."""
        self._place.resume(role)
        self._progress.role(role, self.launch_of(role), "up")

    def resume_all(self) -> None:
        """SIGCONT to whoever is still stopped."""
        for role, suspended in self._place.running.items():
            if suspended:
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
