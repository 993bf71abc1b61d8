"""What arrives between a role's end and its flush: an acknowledgement counts, everything else is over."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import structlog

from services.events import VERIFIER, Effect, Event, Note, Received, Record, Started, Stop, TimerFired
from services.messages import Applied, Stored
from services.records import Finished
from services.shell.options import ShellOptions
from services.shell.runner import Ending, Runner

STORED = Received(VERIFIER, 1, Stored("worker-1", 1, 1))
ENDING = Ending("finished", "")


class Told:
    """Records one fact at its start; then does what it is given, and remembers what it heard."""

    def __init__(self) -> None:
        self.heard: list[Event] = []
        self.then: Callable[[], list[Effect]] = list

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self.heard.append(event)
        if isinstance(event, Started):
            return [Record(Finished(1, "finished"))]
        return self.then()


def with_runner(folder: Path, body: Callable[[Runner, Told], Any]) -> None:
    async def whole() -> None:
        role = Told()
        log = structlog.wrap_logger(None, processors=[_drop])
        runner = Runner(ShellOptions("worker-1", 1, "run-1", "secret", str(folder)), role, "numerics", log, {})
        runner.emit(Started("numerics"))
        assert runner.host.unstored == 1
        body(runner, role)
        await runner._close(None)

    asyncio.run(whole())


def _drop(_logger: Any, _method: str, _entry: Any) -> Any:
    raise structlog.DropEvent


def test_what_is_stored_before_the_flush_begins_is_stored(tmp_path: Path) -> None:
    def body(runner: Runner, role: Told) -> None:
        runner.end(ENDING)
        runner.emit(STORED)
        assert runner.host.unstored == 0

    with_runner(tmp_path, body)


def test_so_is_what_waited_behind_the_event_that_ended_the_role(tmp_path: Path) -> None:
    def body(runner: Runner, role: Told) -> None:
        def stop() -> list[Effect]:
            runner.emit(STORED)  # arrives while the role is at work
            return [Stop("finished")]

        role.then = stop
        runner.emit(TimerFired("now"))
        assert runner.host.unstored == 0

    with_runner(tmp_path, body)


def test_nothing_else_reaches_a_role_that_is_over(tmp_path: Path) -> None:
    def body(runner: Runner, role: Told) -> None:
        runner.end(ENDING)
        heard = len(role.heard)
        role.then = lambda: [Note("still at work")]
        for event in (TimerFired("late"), Received("coordinator", 1, Applied(1, 1, "", ""))):
            runner.emit(event)
        assert len(role.heard) == heard

    with_runner(tmp_path, body)
