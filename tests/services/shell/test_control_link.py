"""What a role tells its driver: facts travel together where nobody waits for them, and nothing overtakes them."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path

import structlog

from services.records import Admitted, StepApplied
from services.shell.control_link import ControlLink
from services.shell.driver_link import Counted, DriverServer, FactSeen, RoleConnected, Thing
from services.shell.driver_requests import fact_observed, record_count
from services.shell.loop import run
from services.shell.options import ShellOptions

PATIENT = StepApplied(1, 1, ())
URGENT = Admitted(1, 1, "n")


def connected(folder: Path, body: Callable[[ControlLink, DriverServer], Awaitable[None]]) -> None:
    """Call `body` with a real link and the driver at its other end."""

    async def main() -> None:
        server = DriverServer("run-1", "secret")
        await server.start()
        options = ShellOptions("coordinator", 1, "run-1", "secret", folder=str(folder), driver=server.address)
        link = ControlLink(options, "127.0.0.1:1", "n", lambda _: None, structlog.get_logger())
        task = asyncio.get_running_loop().create_task(link.run())
        async with asyncio.timeout(20.0):
            assert isinstance((await server.next())[2], RoleConnected)
            await body(link, server)
            await link.finish(task, 5.0)
        await server.stop()

    run(main())


async def things(server: DriverServer, count: int) -> list[Thing]:
    return [(await server.next())[2] for _ in range(count)]


def test_facts_arrive_in_order_whoever_waits_for_them(tmp_path: Path) -> None:
    async def body(link: ControlLink, server: DriverServer) -> None:
        link.tell_fact(fact_observed(PATIENT, 1), at_once=False)
        link.tell_fact(fact_observed(PATIENT, 2), at_once=False)
        link.tell_fact(fact_observed(URGENT, 3), at_once=True)
        assert await things(server, 3) == [FactSeen(1, PATIENT), FactSeen(2, PATIENT), FactSeen(3, URGENT)]

    connected(tmp_path, body)


def test_nothing_else_overtakes_a_fact(tmp_path: Path) -> None:
    async def body(link: ControlLink, server: DriverServer) -> None:
        link.tell_fact(fact_observed(PATIENT, 1), at_once=False)
        link.tell(record_count(1, 0))
        assert await things(server, 2) == [FactSeen(1, PATIENT), Counted(1, 0)]

    connected(tmp_path, body)


def test_a_fact_that_nothing_follows_arrives_all_the_same(tmp_path: Path) -> None:
    async def body(link: ControlLink, server: DriverServer) -> None:
        for number in (1, 2):
            link.tell_fact(fact_observed(PATIENT, number), at_once=False)
            assert await things(server, 1) == [FactSeen(number, PATIENT)]

    connected(tmp_path, body)


def test_the_last_fact_is_told_before_the_link_ends(tmp_path: Path) -> None:
    async def body(link: ControlLink, server: DriverServer) -> None:
        link.tell_fact(fact_observed(PATIENT, 1), at_once=False)
        await link.finish(asyncio.get_running_loop().create_task(asyncio.sleep(5.0)), 1.0)
        assert await things(server, 1) == [FactSeen(1, PATIENT)]

    connected(tmp_path, body)
