"""Kinds of bugs that people have reported about links: silence (16), port races (19)."""

from __future__ import annotations

import asyncio
import socket

from services.events import Linked, Received, Unlinked
from services.messages import Applied
from services.shell.options import TransportOptions
from tests.services.shell.parties import Party, until

RESTARTS = 200
PING_MS = 50.0
SILENT_S = 4.0  # eighty times the interval at which HTTP/2 pings go out


def test_bug_kind_16_a_link_that_is_silent_for_eighty_pings_stays_and_gets_no_goaway() -> None:
    """The intervals scaled: 10 s in production to 50 ms. Heartbeats are off, so that nothing but pings is sent."""

    async def body() -> None:
        silent = TransportOptions(ping_ms=PING_MS, heartbeat_ms=3_600_000.0)
        coordinator = await Party("coordinator", transport=silent).start()
        worker = await Party("worker-1", transport=silent).start()
        worker.board.directory({"coordinator": coordinator.address})
        await until(lambda: worker.of(Linked) and coordinator.of(Linked))
        await asyncio.sleep(SILENT_S)
        assert worker.of(Unlinked) == coordinator.of(Unlinked) == []
        worker.board.send("coordinator", Applied(1, 2, "a", "b"))
        await until(lambda: coordinator.of(Received))
        assert len(worker.of(Linked)) == 1
        await worker.stop()
        await coordinator.stop()

    asyncio.run(body())


def test_bug_kind_19_two_hundred_restarts_beside_a_port_hog() -> None:
    """Every launch binds port 0 and publishes what it got, while somebody takes each port that has just become free."""

    async def body() -> None:
        hogs: list[socket.socket] = []
        worker = await Party("worker-1").start()
        taken: list[str] = []
        for launch in range(1, RESTARTS + 1):
            coordinator = await Party("coordinator", launch=launch).start()
            taken.append(coordinator.address)
            if launch % 20 == 0:
                worker.board.directory({"coordinator": coordinator.address})
                await until(lambda: coordinator.of(Linked), 30.0)  # noqa: B023 - used at once
            await coordinator.stop()
            hogs.append(_hog(coordinator.address))
        assert len(set(taken)) == RESTARTS  # the hog has every port that was ever given back
        await worker.stop()
        for hog in hogs:
            hog.close()

    asyncio.run(body())


def _hog(address: str) -> socket.socket:
    """Listens where somebody has just stopped to."""
    host, _, port = address.rpartition(":")
    found = socket.socket()
    found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    found.bind((host, int(port)))
    found.listen()
    return found
