"""Kinds of bugs that people have reported about links: message limits (15), silence (16), port races (19)."""

from __future__ import annotations

import asyncio
import resource
import socket
import sys
from typing import Any

import numpy as np
import pytest

from services.events import Linked, Received, Unlinked
from services.messages import Applied, Array, Part
from services.shell.options import TransportOptions
from tests.services.shell.parties import Party, until

RESTARTS = 200
PING_MS = 50.0
SILENT_S = 4.0  # eighty times the interval at which HTTP/2 pings go out


CHUNK_ELEMENTS = 131_072
LARGE_ELEMENTS = 75_000_000  # 600 MB
LARGE_PEAK_MIB_MAX = 3500.0
TIGHT = TransportOptions(frame_bytes_max=2**16, message_bytes_max=2**20, outbox_bytes_max=2**20, heartbeat_ms=20.0)


def parts_of(value: Array) -> list[Part]:
    """The value in chunks, as an exchange sends it."""
    starts = range(0, value.size, CHUNK_ELEMENTS)
    return [
        Part(1, 1, 0, "lap", index, len(starts), start, value.size, (1,), value[start : start + CHUNK_ELEMENTS])
        for index, start in enumerate(starts)
    ]


def peak_mib() -> float:
    """Highest memory of this process so far."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    return peak / 2**20 if sys.platform == "darwin" else peak / 2**10


async def linked_workers(**changes: Any) -> tuple[Party, Party]:
    """Two workers; the first knows where the second listens, and has not dialled yet."""
    one, two = await Party("worker-1", **changes).start(), await Party("worker-2", **changes).start()
    one.board.directory({"worker-2": two.address})
    return one, two


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_bug_kind_15_600_megabytes_in_one_message_then_in_parts() -> None:
    async def body() -> None:
        one, two = await linked_workers()
        value = np.arange(LARGE_ELEMENTS, dtype=np.float64)
        before_mib = peak_mib()
        one.board.send("worker-2", Part(1, 1, 0, "lap", 0, 1, 0, value.size, (1,), value))
        await until(lambda: two.of(Received), 60.0)
        assert np.array_equal(two.of(Received)[0].message.data, value)
        two.events.clear()
        for part in parts_of(value):
            one.board.send("worker-2", part)
        arrived = 0
        while arrived < LARGE_ELEMENTS:  # let go of as they come, as roles do
            await until(lambda: two.of(Received), 60.0)
            for event in two.of(Received):
                part = event.message
                assert np.array_equal(part.data, value[part.start : part.start + part.data.size])
                arrived += part.data.size
            two.events.clear()
        assert one.of(Unlinked) == two.of(Unlinked) == []
        assert peak_mib() - before_mib < LARGE_PEAK_MIB_MAX
        await one.stop()
        await two.stop()

    asyncio.run(body())


def test_bug_kind_15_what_waits_for_a_link_is_bounded_and_its_loss_is_told() -> None:
    """The same value whole and in parts, all before the link is up: more than may wait, so that the oldest must go."""

    async def body() -> None:
        one, two = await linked_workers(transport=TIGHT)
        value = np.arange(100_000, dtype=np.float64)
        one.board.send("worker-2", Part(1, 1, 0, "lap", 0, 1, 0, value.size, (1,), value))
        for start in range(0, value.size, 10_000):
            one.board.send(
                "worker-2", Part(1, 1, 0, "lap", 1, 1, start, value.size, (1,), value[start : start + 10_000])
            )
        await until(lambda: len(two.of(Received)) == 10)
        assert b"".join(event.message.data.tobytes() for event in two.of(Received)) == value.tobytes()
        (lost,) = [entry for entry in one.entries if entry["event"].startswith("messages lost")]
        assert (lost["peer"], lost["count"]) == ("worker-2", 1)
        await one.stop()
        await two.stop()

    asyncio.run(body())


def test_bug_kind_15_a_message_that_may_never_be_sent_is_lost_by_name_and_nothing_else_is() -> None:
    async def body() -> None:
        one, two = await linked_workers(transport=TIGHT)
        value = np.zeros(TIGHT.message_bytes_max // 8 + 1)
        one.board.send("worker-2", Part(1, 1, 0, "lap", 0, 1, 0, value.size, (1,), value))
        one.board.send("worker-2", Applied(1, 2, "a", "b"))
        await until(lambda: two.of(Received))
        assert [event.message for event in two.of(Received)] == [Applied(1, 2, "a", "b")]
        assert [entry["count"] for entry in one.entries if entry["event"].startswith("messages lost")] == [1]
        await one.stop()
        await two.stop()

    asyncio.run(body())


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
