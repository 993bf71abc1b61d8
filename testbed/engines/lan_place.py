"""Roles on several hosts: those that `--attach` names on hosts that listen, the others as processes of this machine.

Each host is dialled, asked what it was started for, told what it is to be (`services.identity`), and then starts and
signals the launches of its role as it is told. All that it leaves on its disk comes here when a launch has ended, so
the run folder is as on every engine. Nothing is put between the roles: faults on links are refused.
"""

from __future__ import annotations

import asyncio
import contextlib
import socket
import time
from collections.abc import Mapping

from chaos.actions import ApplyLinkFault
from services.identity import cut_of, model_sha256
from services.shell.attach_client import AttachedHost, AttachError, Heard, Unreachable
from services.shell.attach_frames import (
    AttachHello,
    FilePart,
    HostClaim,
    LaunchExited,
    LaunchFailed,
    LaunchSignal,
    Response,
    SignalLaunch,
    StartLaunch,
)
from services.shell.driver_link import LinksSeen
from services.shell.rooted_disk import RootedDisk
from testbed.engines.base import EngineError, ProgressSink, RunPlan
from testbed.engines.local_cast import command, environment, first_cast, write_settings
from testbed.engines.place import Ears
from testbed.engines.process import ProcessGroup
from testbed.environment import version
from testbed.lan.files import FileParts
from testbed.lan.host import DATA_ROLES
from testbed.lan.settings import LanSettings
from testbed.run_folder import RunFolder

HOSTS_S = 60.0  # for a host to listen
_REDIAL_S = 0.5
_LOST = -1  # exit code of a launch whose host is gone: nobody can say


class LanPlace:
    """A `Place`."""

    def __init__(self, plan: RunPlan, folder: RunFolder, lan: LanSettings, progress: ProgressSink) -> None:
        self._plan = plan
        self._folder = folder
        self._lan = lan
        self._progress = progress
        self._settings = write_settings(plan, folder)
        self._environment = environment(plan.token)
        self._parts = FileParts(RootedDisk(str(folder.path)))
        self._group: ProcessGroup | None = None
        self._hosts: dict[str, AttachedHost] = {}
        self._everybody: list[AttachedHost] = []
        self._running: dict[str, tuple[int, bool]] = {}  # on hosts: role -> launch, suspended
        self._at = lan.at
        self.generation = 0  # newest that the run has had

    @property
    def driver_listen(self) -> str:
        return f"{self._at}:0"

    @property
    def running(self) -> Mapping[str, bool]:
        live = self._group.live if self._group else {}
        here = {role: process.suspended for role, process in live.items()}
        return here | {role: suspended for role, (_, suspended) in self._running.items()}

    async def open(self, ears: Ears) -> None:
        self._ears = ears
        self._at = self._at or _address_towards(self._lan.attach[0][1])
        self._group = ProcessGroup(ears.exited)
        try:
            await self._attach_all()
        except AttachError as error:
            raise EngineError(str(error)) from error

    # ------------------------------------------------------------ attaching

    async def _attach_all(self) -> None:
        """Every host in turn; a role that two of them claim, or that nobody claims, ends it."""
        claims: list[tuple[str, AttachedHost, HostClaim]] = []
        for role, address in self._lan.attach:
            claims.append((role, *await self._dialled(address)))
        named = {role for role, _, _ in claims if role}
        free = [role for role in first_cast(self._plan) if role not in named and "-" in role]
        for role, host, claim in claims:
            role = role or (claim.role if "-" in claim.role else self._free_of(claim.role, free, claims))  # noqa: PLW2901
            if role in self._hosts:
                raise AttachError(f"{self._hosts[role].address} and {host.address} both claim {role}")
            await host.attach(self._hello(role))
            self._hosts[role] = host
            self._send_data(role, host)
            self._progress.note(f"{role} is on {host.address}")

    async def _dialled(self, address: str) -> tuple[AttachedHost, HostClaim]:
        """The host and what it says that it is; one that does not listen yet is waited for."""
        began_s = time.monotonic()
        while True:
            host = AttachedHost(address, self._plan.config.run_id, self._plan.token, self._heard_by(address))
            try:
                claim = await host.dial()
            except Unreachable:
                await host.close()
                since_s = time.monotonic() - began_s
                if since_s > HOSTS_S:
                    raise
                self._progress.waiting("hosts to listen", (address,), since_s, HOSTS_S)
                await asyncio.sleep(_REDIAL_S)
            except BaseException:
                await host.close()
                raise
            else:
                self._everybody.append(host)
                return host, claim

    def _free_of(self, kind: str, free: list[str], claims: list[tuple[str, AttachedHost, HostClaim]]) -> str:
        """The next member of a kind that no host claims by name."""
        claimed = {claim.role for _, _, claim in claims}
        fitting = [role for role in free if role.startswith(f"{kind}-") and role not in claimed | set(self._hosts)]
        if not fitting:
            raise AttachError(f"a host says that it is {kind or 'nobody'}, and this run needs no more of them")
        return fitting[0]

    def _hello(self, role: str) -> AttachHello:
        plan = self._plan
        resume = plan.resume.run_id if plan.resume is not None and role in DATA_ROLES else ""
        return AttachHello(
            role=role, generation=self.generation, model_sha256=model_sha256(plan.config),
            cut=cut_of(plan.config, role), config_json=plan.config.to_json(), plants=plan.plants,
            evidence=plan.verifier, resume_run_id=resume, version=version(),
        )  # fmt: skip

    def _send_data(self, role: str, host: AttachedHost) -> None:
        """What the coordinator and the verifier read from the run folder."""
        if role not in DATA_ROLES:
            return
        root = self._folder.path
        resumed = [path for path in self._folder.resumed_from.rglob("*") if path.is_file()]
        for path in (self._folder.dataset_path, *sorted(resumed)):
            for part in FileParts.of(root, path.relative_to(root).as_posix()):
                host.send(part)

    # ------------------------------------------------------------ what hosts say

    def _heard_by(self, address: str) -> Heard:
        def heard(response: Response | None) -> None:
            role = next(role for role, host in self._hosts.items() if host.address == address)
            if response is None:
                self._lost(role)
            else:
                self._take(role, response)

        return heard

    def _take(self, role: str, response: Response) -> None:
        match response:
            case FilePart():
                self._keep(role, response)
            case LaunchExited(launch, exit_code):
                self._running.pop(role, None)
                self._ears.exited(role, launch, exit_code)
            case LaunchFailed(reason):
                self._running.pop(role, None)
                self._ears.failed(EngineError(f"{self._hosts[role].address}: {reason}"))

    def _keep(self, role: str, part: FilePart) -> None:
        try:
            self._parts.take(part)
        except (OSError, ValueError) as error:
            self._ears.failed(EngineError(f"{role} sent a file that cannot be kept: {error}"))

    def _lost(self, role: str) -> None:
        """The host is gone, and what ran there with it."""
        host = self._hosts[role]
        self._progress.note(f"lost the host of {role} at {host.address}: {host.why_lost}")
        launch, _ = self._running.pop(role, (0, False))
        if launch:
            self._ears.exited(role, launch, _LOST)

    # ------------------------------------------------------------ roles

    def start(self, role: str, launch: int, driver: str) -> None:
        if role in self._hosts:
            self._running[role] = (launch, False)
            self._hosts[role].send(StartLaunch(launch, driver, self.generation))
            return
        line = [*command(role, launch, self._plan, self._folder, driver, self._settings), f"--listen={self._at}:0"]
        self._opened.start(role, launch, line, self._environment, self._folder.log_path(role, launch))

    async def arrived(self, role: str, address: str) -> None:
        """Roles say themselves where they are."""

    def regrouped(self, generation: int) -> None:
        self.generation = max(self.generation, generation)

    def kill(self, role: str) -> None:
        self._signal(role, LaunchSignal.KILL)

    def terminate(self, role: str) -> None:
        raise EngineError(f"engine lan cannot ask {role} to end")

    def suspend(self, role: str) -> None:
        self._signal(role, LaunchSignal.STOP)

    def resume(self, role: str) -> None:
        self._signal(role, LaunchSignal.CONTINUE)

    def _signal(self, role: str, signal: LaunchSignal) -> None:
        if role not in self._hosts:
            group = self._opened
            {
                LaunchSignal.KILL: group.kill,
                LaunchSignal.STOP: group.suspend,
                LaunchSignal.CONTINUE: group.resume,
            }[signal](role)
        elif role in self._running:
            suspended = {LaunchSignal.STOP: True, LaunchSignal.CONTINUE: False}.get(signal)
            launch, before = self._running[role]
            self._running[role] = (launch, before if suspended is None else suspended)
            self._hosts[role].send(SignalLaunch(signal))

    def from_here(self, role: str, address: str) -> str:
        return address

    def seen(self, role: str, report: LinksSeen) -> None:
        """Nobody asked for it here."""

    async def apply(self, fault: ApplyLinkFault) -> None:
        raise TypeError(f"engine lan has no way to carry out {fault!r}")

    async def undo(self, fault: str) -> None:
        raise TypeError(f"engine lan has no way to undo {fault}")

    async def close(self) -> None:
        try:
            await asyncio.gather(*(host.close() for host in self._everybody))
        finally:
            if self._group is not None:
                await self._group.close()

    @property
    def _opened(self) -> ProcessGroup:
        assert self._group is not None, "the place is not open"
        return self._group


def _address_towards(address: str) -> str:
    """The address of this machine from which the way to another one starts. Raises EngineError."""
    host, _, port = address.rpartition(":")
    with contextlib.closing(socket.socket(socket.AF_INET, socket.SOCK_DGRAM)) as way:
        try:
            way.connect((host, int(port)))  # sends nothing
        except OSError as error:
            raise EngineError(f"no way to {address}: {error.strerror or error}; give --at") from error
        return str(way.getsockname()[0])
