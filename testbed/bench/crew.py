"""Processes that run roles of the benchmark's own in the production shell, and what they leave behind.

    results = run_crew(["worker-1", "worker-2"], factory, settings, folder, timeout_s)

Each role writes `<role>.json` into the folder and stops. The processes are started, watched and reaped exactly as those
of the engine `local`.
"""

from __future__ import annotations

import asyncio
import json
import os
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import structlog

from services.shell.driver_link import DriverServer, RoleConnected, RoleEnded
from services.shell.loop import run
from services.shell.options import TOKEN_VARIABLE
from testbed.engines.base import EngineError
from testbed.engines.process import ProcessGroup, log_tail

_ROOT = Path(__file__).resolve().parents[2]
_LEAVE_S = 5.0


def run_crew(
    roles: Sequence[str], factory: str, settings: dict[str, Any], folder: Path, timeout_s: float
) -> dict[str, Any]:
    """Role -> what it wrote. Raises EngineError when one fails, or does not end in time."""
    folder.mkdir(parents=True)
    run(_Crew(roles, factory, settings, folder).go(timeout_s))
    return {role: json.loads((folder / f"{role}.json").read_text(encoding="utf-8")) for role in roles}


class _Crew:
    """One crew, in one asyncio loop."""

    def __init__(self, roles: Sequence[str], factory: str, settings: dict[str, Any], folder: Path) -> None:
        self._roles = roles
        self._factory = factory
        self._settings = json.dumps(settings)
        self._folder = folder
        self._run_id, self._token = "bench", secrets.token_urlsafe(24)

    async def go(self, timeout_s: float) -> None:
        """Start everybody, introduce them to each other, wait until all are done."""
        broken: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        silent = structlog.wrap_logger(structlog.ReturnLogger(), processors=[])
        server = DriverServer(self._run_id, self._token, log=silent)
        await server.start()
        group = ProcessGroup(lambda role, _launch, code: self._exited(broken, role, code))
        try:
            for role in self._roles:
                group.start(role, 1, self._command(role, server.address), self._environment(), self._log(role))
            async with asyncio.timeout(timeout_s):
                work = asyncio.ensure_future(self._work(server))
                await asyncio.wait((work, broken), return_when=asyncio.FIRST_COMPLETED)
                (broken if broken.done() else work).result()
            await group.wait_gone(_LEAVE_S)
        except TimeoutError:
            raise EngineError(f"the processes of the benchmark did not end within {timeout_s:g} s") from None
        finally:
            broken.cancel()
            await group.close()
            await server.stop()

    async def _work(self, server: DriverServer) -> None:
        connected: set[str] = set()
        ended: set[str] = set()
        while len(ended) < len(self._roles):
            role, _, thing = await server.next()
            if isinstance(thing, RoleConnected):
                connected.add(role)
                if len(connected) == len(self._roles):
                    server.publish(server.addresses)
            elif isinstance(thing, RoleEnded):
                if thing.condition != "finished":
                    raise EngineError(f"{role} of the benchmark ended: {thing.condition} {thing.reason}")
                ended.add(role)

    def _exited(self, broken: asyncio.Future[None], role: str, code: int) -> None:
        if code != 0 and not broken.done():
            broken.set_exception(EngineError(f"{role} of the benchmark exited: {code}\n{log_tail(self._log(role))}"))

    def _log(self, role: str) -> Path:
        return self._folder / f"{role}.log"

    def _command(self, role: str, driver: str) -> list[str]:
        return [
            sys.executable, "-P", "-m", "services.shell", role, f"--run-id={self._run_id}", f"--folder={self._folder}",
            f"--driver={driver}", f"--factory={self._factory}", f"--settings={self._settings}",
        ]  # fmt: skip

    def _environment(self) -> dict[str, str]:
        path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
        return {**os.environ, TOKEN_VARIABLE: self._token, "PYTHONPATH": path}
