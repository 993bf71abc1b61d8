"""Starts toy roles as real processes under a real driver, and takes all of them down again."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import subprocess
import sys
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

from services.shell.driver_link import DriverServer, RoleConnected, Thing

ROOT = Path(__file__).resolve().parents[3]


class Cast:
    """Processes by role, the driver's server, and everything that the driver heard."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.driver = DriverServer("run-1", "secret")
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.heard: list[tuple[str, int, Thing]] = []
        self._everybody: list[subprocess.Popen[bytes]] = []
        self._new = asyncio.Event()

    def launch(self, role: str, launch: int = 1, token: str = "secret", driver: str = "", **settings: Any) -> None:
        command = [
            sys.executable, "-m", "services.shell", role, "--launch", str(launch), "--run-id", "run-1",
            "--folder", str(self.folder), "--driver", driver or self.driver.address,
            "--factory", "tests.services.shell.toys:make", "--settings", json.dumps(settings), "--observe",
        ]  # fmt: skip
        with (self.folder / f"{role}.{launch}.log").open("ab") as log:
            process = subprocess.Popen(
                command, cwd=ROOT, env={**os.environ, "GRADSTORM_TOKEN": token}, stdout=log, stderr=log
            )
        self.processes[role] = process
        self._everybody.append(process)

    async def listen(self) -> None:
        """Keep what the driver hears. Publishing is the test's."""
        while True:
            self.heard.append(await self.driver.next())
            self._new.set()

    def of(self, kind: type, role: str = "") -> list[Any]:
        return [thing for name, _, thing in self.heard if isinstance(thing, kind) and role in ("", name)]

    async def until(self, kind: type, role: str = "", count: int = 1, timeout_s: float = 20.0) -> Any:
        """Wait for the count-th thing of a kind from a role."""
        async with asyncio.timeout(timeout_s):
            while len(found := self.of(kind, role)) < count:
                self._new.clear()
                await self._new.wait()
        return found[count - 1]

    async def connected(self, *roles: str) -> None:
        for role in roles:
            await self.until(RoleConnected, role)

    def publish(self) -> None:
        self.driver.publish(self.driver.addresses)

    async def exit_code(self, role: str, timeout_s: float = 20.0) -> int:
        return await asyncio.to_thread(self.processes[role].wait, timeout_s)

    def log(self, role: str, launch: int = 1) -> list[dict[str, Any]]:
        """The role's structured log. Asserts that there is nothing else in it."""
        lines = (self.folder / f"{role}.{launch}.log").read_text(encoding="utf-8").splitlines()
        return [json.loads(line) for line in lines]

    def take_down(self) -> None:
        for process in self._everybody:
            with contextlib.suppress(ProcessLookupError):
                process.kill()
            process.wait(10)


@contextlib.asynccontextmanager
async def cast_in(folder: Path) -> AsyncIterator[Cast]:
    """A cast whose processes are gone afterwards, whatever happens."""
    cast = Cast(folder)
    await cast.driver.start()
    listener = asyncio.ensure_future(cast.listen())
    try:
        yield cast
    finally:
        listener.cancel()
        cast.take_down()
        await cast.driver.stop()
