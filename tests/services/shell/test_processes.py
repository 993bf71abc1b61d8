"""Toy roles in real processes under a real driver: the shell's whole life, from the first directory to exit codes."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import pytest

from services.host import Hold
from services.records import FaultArmed, Finished, Healed, Summed
from services.shell.channel import CONTROL_METHOD
from services.shell.driver_link import (
    Counted,
    DriverError,
    DriverServer,
    FactSeen,
    HoldReached,
    RoleConnected,
    RoleEnded,
    RoleGone,
)
from services.shell.driver_reporter import DriverReporter
from services.shell.stream import ADMITTED
from services.wire import control_pb2 as pb
from tests.services.shell.cast_of_processes import ROOT, Cast, cast_in
from tests.testbed.waiting import wait_until

pytestmark = pytest.mark.local


def run(folder: Path, body: Callable[[Cast], Awaitable[None]]) -> None:
    async def whole() -> None:
        async with cast_in(folder) as cast:
            await body(cast)

    asyncio.run(asyncio.wait_for(whole(), 90.0))


async def up(cast: Cast, *roles: str, **settings: Any) -> None:
    """Launch the roles, wait for all of them, publish."""
    for role in roles:
        cast.launch(role, **settings)
    await cast.connected(*roles)
    cast.publish()


def test_two_roles_do_rounds_over_grpc_and_finish(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-1", "verifier", steps=5)
        ended = await cast.until(RoleEnded, "coordinator")
        assert (ended.condition, ended.unstored) == ("finished", 0)
        assert await cast.exit_code("coordinator") == 0
        assert await cast.exit_code("worker-1") == 0
        assert (tmp_path / "log" / "5").read_bytes() == b"15"
        facts = [seen.fact for seen in cast.of(FactSeen, "coordinator")]
        assert [fact.step for fact in facts if isinstance(fact, Summed)] == [1, 2, 3, 4, 5]
        assert isinstance(facts[-1], Finished)
        durable = 5  # one a step: recorded by the host, for the verifier alone
        assert ended.recorded == cast.of(FactSeen, "coordinator")[-1].sequence == len(facts) + durable
        entries = cast.log("coordinator")
        assert {entry["event"] for entry in entries} >= {"started", "linked", "ending"}
        assert all((entry["run"], entry["role"], entry["launch"]) == ("run-1", "coordinator", 1) for entry in entries)
        assert (entries[-1]["step"], entries[-1]["generation"]) == (5, 1)
        assert "secret" not in str(entries)

    run(tmp_path, body)


def test_a_role_does_nothing_before_the_first_directory_and_stands_at_a_hold_until_released(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        for role in ("coordinator", "worker-1", "verifier"):
            cast.launch(role)
        await cast.connected("coordinator", "worker-1", "verifier")
        await asyncio.sleep(0.3)
        assert not any(entry["event"] == "started" for entry in cast.log("coordinator"))
        await cast.driver.arm(Hold("h1", "worker-1", 2, "offer"))
        await cast.driver.arm(Hold("h2", "coordinator", 3, "open", stand=False))
        cast.publish()
        assert await cast.until(HoldReached, "worker-1") == HoldReached("h1")
        await asyncio.sleep(0.3)
        assert [seen.fact.step for seen in cast.of(FactSeen, "coordinator") if isinstance(seen.fact, Summed)] == [1]
        assert cast.of(RoleEnded) == []
        cast.driver.release("worker-1", "h1")
        assert await cast.until(HoldReached, "coordinator") == HoldReached("h2")
        assert await cast.exit_code("coordinator") == 0
        assert not any(entry["event"] == "unlinked" for entry in cast.log("worker-1")[:-3])

    run(tmp_path, body)


def test_a_driver_that_is_busy_while_a_role_ends_hears_its_last_words(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        for role in ("coordinator", "worker-1", "verifier"):
            cast.launch(role, steps=3)
        await cast.connected("coordinator", "worker-1", "verifier")
        await cast.driver.arm(Hold("h1", "worker-1", 3, "offer"))
        cast.publish()
        await cast.until(HoldReached, "worker-1")
        cast.driver.release("worker-1", "h1")
        await asyncio.sleep(0.05)
        threading.Event().wait(2.5)  # the driver is busy, and its loop stands still
        ended = await cast.until(RoleEnded, "coordinator")
        assert ended.condition == "finished"
        assert isinstance(cast.of(FactSeen, "coordinator")[-1].fact, Finished)

    run(tmp_path, body)


def test_a_killed_role_is_gone_and_its_next_launch_takes_its_place(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        for role in ("coordinator", "worker-1", "verifier"):
            cast.launch(role, steps=3)
        await cast.connected("coordinator", "worker-1", "verifier")
        await cast.driver.arm(Hold("h1", "worker-1", 2, "offer"))
        cast.publish()
        await cast.until(HoldReached, "worker-1")
        cast.processes["worker-1"].send_signal(signal.SIGKILL)
        await cast.until(RoleGone, "worker-1", timeout_s=2.0)
        assert await cast.exit_code("worker-1") == -9
        with pytest.raises(DriverError, match="worker-1 is not connected"):
            cast.driver.release("worker-1", "h1")
        cast.launch("worker-1", launch=2)
        await cast.until(RoleConnected, "worker-1", count=2)
        assert cast.driver.connected["worker-1"] == 2
        cast.publish()
        assert await cast.exit_code("coordinator") == 0

    run(tmp_path, body)


def test_frozen_timers_do_not_fire_while_messages_and_facts_go_on(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        for role in ("coordinator", "worker-1", "verifier"):
            cast.launch(role, steps=2)
        await cast.connected("coordinator", "worker-1", "verifier")
        await cast.driver.arm(Hold("h1", "worker-1", 2, "offer"))
        cast.publish()
        await cast.until(HoldReached, "worker-1")
        cast.driver.freeze("coordinator")
        await asyncio.sleep(0.5)
        cast.driver.release("worker-1", "h1")
        await asyncio.sleep(0.0)
        cast.driver.thaw("coordinator")
        await cast.until(RoleEnded, "coordinator")
        ticks = [int(seen.fact.role.split()[1]) for seen in cast.of(FactSeen) if isinstance(seen.fact, Summed)]
        assert len(ticks) == 2
        assert ticks[1] - ticks[0] < 20, "ten milliseconds a tick: fifty would have passed"

    run(tmp_path, body)


def test_a_crash_in_a_role_is_logged_reported_and_ends_with_its_own_code(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-1", "verifier", crash_at=2)
        ended = await cast.until(RoleEnded, "coordinator")
        assert ended.condition == "crashed"
        assert "RuntimeError: crash as asked" in ended.reason
        assert await cast.exit_code("coordinator") == 70
        crash = next(entry for entry in cast.log("coordinator") if entry["event"] == "crashed")
        assert "Traceback" in crash["exception"]
        assert "toys.py" in crash["exception"]

    run(tmp_path, body)


def test_a_named_stop_has_its_exit_code_and_an_escape_from_the_folder_is_a_disk_error(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-1", outside="../")
        ended = await cast.until(RoleEnded, "coordinator")
        assert (ended.condition, ended.reason) == ("disk", "EACCES ../log/1")
        assert await cast.exit_code("coordinator") == 5

    run(tmp_path, body)


def test_stop_flushes_what_a_late_verifier_has_not_stored(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-1", steps=3)
        await cast.until(Counted, "coordinator")
        cast.launch("verifier")
        await cast.connected("verifier")
        cast.publish()
        ended = await cast.until(RoleEnded, "coordinator")
        assert ended.unstored == 0
        assert ended.recorded > 3

    run(tmp_path, body)


def test_flushing_is_bounded_when_the_verifier_stores_nothing(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-1", "verifier", steps=2, deaf=True)
        ended = await cast.until(RoleEnded, "coordinator", timeout_s=15.0)
        assert ended.unstored == ended.recorded > 0
        assert await cast.exit_code("coordinator") == 0
        assert any(entry["event"] == "records unstored" for entry in cast.log("coordinator"))

    run(tmp_path, body)


def test_sigterm_and_the_drivers_shutdown_end_a_role_in_order(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator", "worker-2")
        cast.processes["worker-2"].send_signal(signal.SIGTERM)
        assert (await cast.until(RoleEnded, "worker-2")).condition == "shutdown"
        assert await cast.exit_code("worker-2") == 0
        cast.driver.shutdown("coordinator", "enough")
        ended = await cast.until(RoleEnded, "coordinator")
        assert (ended.condition, ended.reason) == ("shutdown", "enough")
        assert await cast.exit_code("coordinator") == 0

    run(tmp_path, body)


def test_the_end_of_a_role_that_the_driver_is_just_letting_in_is_told(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        greeted, let_in = asyncio.Event(), asyncio.Event()
        said: list[pb.ControlRequest] = []

        async def control(_requests: Any, context: Any) -> None:
            await context.send_initial_metadata(ADMITTED)
            await context.read()
            greeted.set()
            await let_in.wait()
            await context.write(pb.ControlResponse(accepted=pb.Accepted()).SerializeToString())
            said.append(pb.ControlRequest.FromString(await context.read()))

        driver = grpc.aio.server()
        service, name = CONTROL_METHOD.split("/")[1:]
        method: Any = grpc.stream_stream_rpc_method_handler(control)
        driver.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        port = driver.add_insecure_port("127.0.0.1:0")
        await driver.start()
        cast.launch("worker-1", driver=f"127.0.0.1:{port}")
        await greeted.wait()
        cast.processes["worker-1"].send_signal(signal.SIGTERM)
        while not [entry for entry in cast.log("worker-1") if entry["event"] == "ending"]:
            await asyncio.sleep(0.01)
        let_in.set()
        assert await cast.exit_code("worker-1") == 0
        assert [one.role_stopped.condition for one in said] == ["shutdown"]
        await driver.stop(None)

    run(tmp_path, body)


def test_a_role_whose_driver_is_gone_exits_within_three_seconds_even_before_it_started(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator")
        cast.launch("worker-1")
        await cast.connected("worker-1")  # and has had no directory
        await cast.driver.stop()
        for role in ("coordinator", "worker-1"):
            assert await cast.exit_code(role, 10.0) == 75
            times = {entry["event"]: datetime.fromisoformat(entry["timestamp"]) for entry in reversed(cast.log(role))}
            waited_s = (times["ending"] - times["no link to the driver"]).total_seconds()
            assert waited_s < 2.5, "the rest of the three seconds is for leaving"

    run(tmp_path, body)


def test_a_short_loss_of_the_control_link_is_survived(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator")
        address = cast.driver.address
        await cast.driver.stop()
        await asyncio.sleep(0.5)
        again = DriverServer("run-1", "secret", listen=address)
        await again.start()
        role, launch, thing = await asyncio.wait_for(again.next(), 5.0)
        assert (role, launch, isinstance(thing, RoleConnected)) == ("coordinator", 1, True)
        again.shutdown("coordinator", "enough")
        assert await cast.exit_code("coordinator") == 0
        await again.stop()

    run(tmp_path, body)


def test_a_role_with_a_wrong_token_never_gets_to_the_driver(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        cast.launch("worker-1", token="guess")
        assert await cast.exit_code("worker-1") == 75
        assert cast.heard == []
        assert any("wrong token" in entry.get("why", "") for entry in cast.log("worker-1"))

    run(tmp_path, body)


def test_the_driver_reports_concludes_and_hears_the_verdict(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "verifier")
        reporter = DriverReporter("run-1", "secret")
        reporter.tell(FaultArmed("1-kill-worker-2", "kill", "worker-2", {"step": 3}))
        reporter.verifier_at(cast.driver.addresses["verifier"])
        reporter.tell(Healed(1000.0, 3))
        assert await reporter.stored(5.0)
        assert (reporter.recorded, reporter.unstored) == (2, 0)
        assert json.loads(await reporter.conclude("{}", 5.0)) == {"driver": 2}
        await reporter.close()
        assert await cast.exit_code("verifier") == 0

    run(tmp_path, body)


def test_no_verdict_is_an_error_that_says_why(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        reporter = DriverReporter("run-1", "secret")
        with pytest.raises(DriverError, match="not linked"):
            await reporter.conclude("{}", 0.2)
        await reporter.close()

    run(tmp_path, body)


def test_without_a_token_nothing_starts() -> None:
    environment = {name: value for name, value in os.environ.items() if name != "GRADSTORM_TOKEN"}
    answer = subprocess.run(
        [sys.executable, "-m", "services.shell", "worker-1", "--run-id", "r", "--folder", "."],
        cwd=ROOT, env=environment, capture_output=True, text=True, timeout=30, check=False,
    )  # fmt: skip
    assert answer.returncode == 2
    assert "GRADSTORM_TOKEN" in answer.stderr


def test_a_second_process_that_claims_a_role_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    async def body(cast: Cast) -> None:
        await up(cast, "coordinator")
        first = cast.processes["coordinator"]
        cast.launch("coordinator")  # the same launch once more: two hosts that were told the same number
        await asyncio.to_thread(_until_logged, cast, "another process already")
        assert cast.driver.connected == {"coordinator": 1}
        assert len(cast.of(RoleConnected, "coordinator")) == 1
        cast.processes["coordinator"].kill()
        cast.driver.shutdown("coordinator", "enough")
        assert await asyncio.to_thread(first.wait, 20.0) == 0

    run(tmp_path, body)


def _until_logged(cast: Cast, words: str) -> None:
    assert wait_until(lambda: any(words in entry.get("why", "") for entry in cast.log("coordinator")), 20.0)
