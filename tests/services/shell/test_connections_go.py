"""A connection whose stream is over goes, whatever gRPC's client still believes of it."""

from __future__ import annotations

import asyncio
import os
import signal
import subprocess
import sys

import psutil
import pytest

from services.events import Linked
from services.shell import loop
from tests.services.shell.parties import Party, until

_WORKER = """
import asyncio, os, sys
from services.shell import loop
from tests.services.shell.parties import Party

async def main():
    worker = await Party("worker-1").start()
    worker.board.directory({"coordinator": sys.argv[1]})
    await asyncio.sleep(120)

loop.run(main())
"""


@pytest.mark.local
def test_who_was_stopped_and_cut_off_keeps_one_connection() -> None:
    """What it had not read yet holds the old call open in gRPC (grpc/grpc 42125), and the call its connection."""

    async def body() -> None:
        coordinator = await Party("coordinator").start()
        script = [sys.executable, "-c", _WORKER, coordinator.address]
        child = subprocess.Popen(script, env={**os.environ, "PYTHONPATH": os.getcwd(), "GRPC_VERBOSITY": "ERROR"})
        worker = psutil.Process(child.pid)
        try:
            await until(lambda: coordinator.of(Linked), 60.0)
            for times in range(2, 5):
                worker.suspend()
                await until(lambda: worker.status() == psutil.STATUS_STOPPED)
                await asyncio.sleep(0.1)  # heartbeats come in, which it does not read
                coordinator.board.cut("worker-1", 0)
                await until(lambda: not coordinator.board.links())
                worker.resume()
                await until(lambda: len(coordinator.of(Linked)) == times)  # noqa: B023 - used at once
            await until(lambda: len(_established(worker)) == 1)
        finally:
            child.send_signal(signal.SIGKILL)
            child.wait()
        await coordinator.stop()

    loop.run(asyncio.wait_for(body(), 100.0))


def _established(process: psutil.Process) -> list[object]:
    return [one for one in process.net_connections("tcp") if one.status == psutil.CONN_ESTABLISHED]
