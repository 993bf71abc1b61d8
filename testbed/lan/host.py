"""A listening host: waits for the driver of a run, then starts, signals and ends the processes of one role for it.

    gradstorm shard 2 --listen 10.0.0.2:7070      # waits; `gradstorm run … --engine lan --attach …` dials

What the role writes lies in a folder of the run's own below `home`; whenever a launch has ended, what is new there
goes to the driver, so that the run folder has the same files as on every engine. When the driver is lost, the role's
process is killed.
"""

from __future__ import annotations

import asyncio
import re
from collections.abc import AsyncIterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from services.any_config import read_run_config
from services.events import COORDINATOR, VERIFIER
from services.identity import Claim, cut_of, model_sha256
from services.shell.attach_frames import (
    AttachHello,
    Detach,
    FilePart,
    LaunchExited,
    LaunchFailed,
    LaunchSignal,
    Response,
    SignalLaunch,
    StartLaunch,
    read_request,
    response_bytes,
)
from services.shell.attach_server import AttachServer
from services.shell.rooted_disk import RootedDisk
from services.shell.stream import ServerStream, StreamBroken
from testbed.engines.base import EngineError
from testbed.engines.local_cast import CONFIG_FILE, SHELL, environment, settings_in, shell_arguments
from testbed.engines.process import ProcessGroup
from testbed.lan.files import FileParts, changed_files
from testbed.run_folder import RunFolder
from training.errors import ConfigurationError

_RUN_ID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9_.-]*")  # it names a folder
DATA_ROLES = (COORDINATOR, VERIFIER)  # those that the driver sends the data to; members get them from the coordinator


@dataclass(frozen=True, slots=True)
class HostSettings:
    """One listening host. `listen` is HOST:PORT; the role itself listens at the same host, at `role_port`."""

    claim: Claim
    token: str = field(repr=False)
    listen: str = "127.0.0.1:0"
    role_port: int = 0
    home: Path = Path("runs")
    patience_s: float = 3600.0


class HostGivenUp(EngineError):
    """Nobody came, or the driver was lost (exit code 3)."""


async def host(settings: HostSettings, log: Any, say: Any) -> None:
    """Wait, serve one run to its end. Raises HostGivenUp."""
    served: list[_Session] = []

    def open_session(hello: AttachHello, run_id: str, stream: ServerStream) -> _Session:
        served.append(_Session(settings, hello, run_id, stream, server))
        say(f"attached to {run_id} as {hello.role}")
        return served[-1]

    server = AttachServer(settings.claim, settings.token, settings.listen, open_session, log)
    await server.start()
    say(f"{settings.claim.role} listens at {server.address} for {settings.claim.run_id or 'any run'} with its token")
    try:
        await _ended(server, served, settings)
    finally:
        await server.stop()


async def _ended(server: AttachServer, served: list[_Session], settings: HostSettings) -> None:
    while not server.ended.done():
        await asyncio.wait((server.ended,), timeout=settings.patience_s)
        if not server.ended.done() and not served:
            raise HostGivenUp(f"no driver attached {settings.claim.role} within {settings.patience_s:g} s")
    if why := server.ended.result():
        raise HostGivenUp(why)


class _Session:
    """One attachment: the role's processes and what travels over the stream."""

    def __init__(
        self, settings: HostSettings, hello: AttachHello, run_id: str, stream: ServerStream, server: AttachServer
    ) -> None:
        self._settings = settings
        self._hello = hello
        self._run_id = run_id
        self._stream = stream
        self._server = server
        self._folder = _prepared_folder(settings, hello, run_id)
        self._parts = FileParts(RootedDisk(str(self._folder.path)))
        self._sent: dict[str, tuple[int, int]] = {}
        self._exits: asyncio.Queue[Response] = asyncio.Queue()
        self._launch = 0

    async def run(self) -> None:
        """Until the driver detaches. Raises StreamBroken when it is lost; no process is left either way."""
        group = ProcessGroup(self._exited)
        reader = asyncio.get_running_loop().create_task(self._read(group))
        writer = asyncio.get_running_loop().create_task(self._write())
        try:
            await asyncio.wait((reader, writer), return_when=asyncio.FIRST_COMPLETED)
            (reader if reader.done() else writer).result()
        finally:
            for task in (reader, writer):
                task.cancel()
            await asyncio.gather(reader, writer, return_exceptions=True)
            await group.close()

    async def _read(self, group: ProcessGroup) -> None:
        while True:
            match read_request(await self._stream.read(), self._stream.remote):
                case FilePart() as part:
                    self._parts.take(part)
                case StartLaunch() as start:
                    self._start(group, start)
                case SignalLaunch(signal):
                    _signal(group, self._hello.role, signal)
                case Detach():
                    return
                case other:
                    raise StreamBroken(f"{type(other).__name__} in the middle of an attachment")

    def _start(self, group: ProcessGroup, start: StartLaunch) -> None:
        role, settings = self._hello.role, self._settings
        why = ""
        if start.launch <= self._launch:
            why = f"launch {start.launch} of {role} is not newer than {self._launch}"
        elif start.generation < self._server.generation:
            why = f"generation {start.generation} is older than {self._server.generation}"
        if why:
            self._exits.put_nowait(LaunchFailed(why))
            return
        self._launch, self._server.generation = start.launch, start.generation
        told = settings_in(self._folder, self._hello.resume_run_id, self._hello.plants)
        arguments = shell_arguments(
            role, start.launch, self._run_id, self._folder.path, start.driver, told, evidence=self._hello.evidence
        )
        listen = f"--listen={settings.listen.rpartition(':')[0]}:{settings.role_port}"
        log_path = self._folder.log_path(role, start.launch)
        try:
            group.start(role, start.launch, [*SHELL, *arguments, listen], environment(settings.token), log_path)
        except EngineError as error:
            self._exits.put_nowait(LaunchFailed(str(error)))

    def _exited(self, _role: str, launch: int, exit_code: int) -> None:
        self._exits.put_nowait(LaunchExited(launch, exit_code))

    async def _write(self) -> None:
        while True:
            response = await self._exits.get()
            async for part in self._left_behind():
                await self._stream.write(response_bytes(part))
            await self._stream.write(response_bytes(response))

    async def _left_behind(self) -> AsyncIterator[FilePart]:
        for path, mark in changed_files(self._folder.path, self._sent):
            for part in FileParts.of(self._folder.path, path):
                yield part
            self._sent[path] = mark


def _prepared_folder(settings: HostSettings, hello: AttachHello, run_id: str) -> RunFolder:
    """A folder for the role in this run, with the configuration in it. Raises ConfigurationError.

    The digests are compared with what the configuration says, not only with what the driver claims.
    """
    try:
        config = read_run_config(hello.config_json)
    except (TypeError, KeyError, ValueError) as error:
        raise ConfigurationError(f"the configuration cannot be read: {error}") from None
    if (model_sha256(config), cut_of(config, hello.role)) != (hello.model_sha256, hello.cut):
        raise ConfigurationError("the configuration is not the one that was announced")
    if not _RUN_ID.fullmatch(run_id):
        raise ConfigurationError(f"{run_id!r} is no id of a run")
    path = (settings.home / run_id / hello.role).resolve()
    try:
        path.mkdir(parents=True)
    except FileExistsError:
        raise ConfigurationError(f"{path} is there from an earlier time; make a new plan, or remove it") from None
    folder = RunFolder(path)
    folder.logs.mkdir()
    (path / CONFIG_FILE).write_text(hello.config_json, encoding="utf-8")
    return folder


def _signal(group: ProcessGroup, role: str, signal: LaunchSignal) -> None:
    {
        LaunchSignal.KILL: group.kill,
        LaunchSignal.STOP: group.suspend,
        LaunchSignal.CONTINUE: group.resume,
    }[signal](role)
