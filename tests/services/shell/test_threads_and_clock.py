"""Compute and disk threads answer in order and lose no error; the role's clock stands still when it is told to."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from services.events import Compute, Computed, Event, Load, Loaded, Persist, Persisted, PersistFailed
from services.shell.clock import RoleClock
from services.shell.rooted_disk import RootedDisk, own_files
from services.shell.threads import DiskThread, JobThread
from tests.services.shell.parties import until
from training.disk import AppendFile, MakeDir, Rename, SyncFile, WriteFile


@dataclass(frozen=True)
class Job:
    """Runs `call`."""

    call: Callable[[], Any]
    inline: bool = False

    def __call__(self) -> Any:
        return self.call()


def fail() -> None:
    raise ValueError("no")


def test_small_jobs_run_in_place_and_large_ones_on_one_thread_in_order() -> None:
    async def body() -> None:
        events: list[Event] = []
        jobs = JobThread(events.append, lambda error: pytest.fail(str(error)))
        jobs.compute(Compute("small", Job(threading.get_ident, inline=True)))
        assert events == [Computed("small", threading.get_ident())]
        for token in ("a", "b", "c"):
            jobs.compute(Compute(token, Job(threading.get_ident)))
        jobs.compute(Compute("bad", Job(fail)))
        await until(lambda: len(events) == 5)
        assert [event.token for event in events if isinstance(event, Computed)] == ["small", "a", "b", "c", "bad"]
        others = {event.result for event in events[1:4] if isinstance(event, Computed)}
        assert len(others) == 1
        assert threading.get_ident() not in others
        assert events[4] == Computed("bad", None, "ValueError: no")
        jobs.close()

    asyncio.run(body())


def test_disk_operations_and_loads_are_answered_in_order_and_a_refusal_ends_the_plan(tmp_path: Path) -> None:
    async def body() -> None:
        events: list[Event] = []
        disk = DiskThread(RootedDisk(str(tmp_path)), events.append, lambda error: pytest.fail(str(error)))
        disk.persist(Persist("1", (MakeDir("a"), WriteFile("a/x", b"1"), SyncFile("a/x"), AppendFile("a/x", b"2")), ""))
        disk.load(Load("2", lambda disk: disk.read("a/x")))
        disk.persist(Persist("3", (WriteFile("b/x", b""), WriteFile("a/y", b"")), ""))
        disk.persist(Persist("4", (Rename("a/x", "../out"),), ""))
        disk.persist(Persist("5", (WriteFile("/tmp/out", b""),), ""))
        disk.load(Load("6", lambda disk: disk.read("a/../../secret")))
        await until(lambda: len(events) == 6)
        assert events[:3] == [Persisted("1"), Loaded("2", b"12"), PersistFailed("3", "ENOENT", "b/x")]
        assert [type(event) for event in events[3:]] == [PersistFailed, PersistFailed, Loaded]
        assert isinstance(events[3], PersistFailed)
        assert events[3].error_name == "EACCES"
        assert isinstance(events[5], Loaded)
        assert "PermissionError" in events[5].error
        assert not (tmp_path / "a" / "y").exists()
        disk.close()

    asyncio.run(body())


def test_an_error_of_our_own_on_the_disk_thread_is_not_lost(tmp_path: Path) -> None:
    async def body() -> None:
        events: list[Event] = []
        errors: list[BaseException] = []
        disk = DiskThread(RootedDisk(str(tmp_path)), events.append, errors.append)
        disk.persist(Persist("1", (WriteFile("x", "text"),), ""))  # type: ignore[arg-type]
        await until(lambda: errors)
        assert isinstance(errors[0], TypeError)
        assert events == []
        disk.close()

    asyncio.run(body())


def test_own_files_are_those_that_a_role_comes_back_from(tmp_path: Path) -> None:
    (tmp_path / "coordinator.log").write_bytes(b"1")
    (tmp_path / "history.jsonl").write_bytes(b"2")
    assert own_files(str(tmp_path), "coordinator") == {"coordinator.log": b"1"}
    assert own_files(str(tmp_path), "verifier") == {"history.jsonl": b"2"}
    assert own_files(str(tmp_path), "worker-1") == {}


def test_timers_fire_once_in_order_and_setting_again_replaces() -> None:
    async def body() -> None:
        fired: list[tuple[str, float]] = []
        clock = RoleClock(asyncio.get_running_loop(), lambda name: fired.append((name, clock.now_ms())))
        clock.set_timer("late", 40.0)
        clock.set_timer("early", 10.0)
        clock.set_timer("cancelled", 20.0)
        clock.set_timer("late", 30.0)
        clock.cancel_timer("cancelled")
        clock.cancel_timer("never set")
        await until(lambda: len(fired) == 2)
        await asyncio.sleep(0.03)
        assert [name for name, _ in fired] == ["early", "late"]
        assert fired[0][1] >= 10.0
        assert fired[1][1] >= 30.0
        clock.close()

    asyncio.run(body())


def test_a_frozen_clock_stands_still_and_goes_on_from_there() -> None:
    async def body() -> None:
        fired: list[str] = []
        clock = RoleClock(asyncio.get_running_loop(), fired.append)
        clock.set_timer("running", 20.0)
        clock.freeze()
        clock.freeze()
        frozen_ms = clock.now_ms()
        clock.set_timer("set while frozen", 5.0)
        await asyncio.sleep(0.08)
        assert clock.now_ms() == frozen_ms
        assert fired == []
        clock.thaw()
        clock.thaw()
        assert clock.now_ms() - frozen_ms < 20.0
        await until(lambda: len(fired) == 2)
        assert fired == ["set while frozen", "running"]
        clock.close()

    asyncio.run(body())


def test_kind_20_the_wall_clock_has_no_say(monkeypatch: pytest.MonkeyPatch) -> None:
    async def body() -> None:
        fired: list[str] = []
        clock = RoleClock(asyncio.get_running_loop(), fired.append)
        before_ms = clock.now_ms()
        monkeypatch.setattr("time.time", lambda: -3600.0)
        clock.set_timer("timer", 10.0)
        await until(lambda: fired)
        assert 0.0 <= clock.now_ms() - before_ms < 5000.0
        clock.close()

    asyncio.run(body())
