"""Drives one verifier over a disk in memory: what a shell does, in the order that a test wants."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator, Sequence
from typing import Any

from services.events import (
    Compute,
    Computed,
    Effect,
    Event,
    Load,
    Loaded,
    Note,
    Persist,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
)
from services.fact_codec import fact_to_numbered
from services.history import ARRAYS_PATH, LINES_PATH
from services.messages import Conclude, Concluded, Message, Numbered, Report, Stored
from services.roles.judge_queue import VerifierOptions
from services.roles.verifier import Verifier
from tests.services.honest_run import HonestRun
from training.disk import LossyDisk, SyncDir, SyncFile, WriteFile


class Bench:
    """`give` an event and everything that follows of it, except what `hold_persists` keeps back."""

    def __init__(self, dataset: bytes, disk: LossyDisk | None = None, options: VerifierOptions | None = None) -> None:
        self.dataset = dataset
        self.disk = disk or LossyDisk()
        self.options = options
        self.launch = 0
        self.now_ms = 0.0
        self.sent: list[tuple[str, Message]] = []
        self.notes: list[str] = []
        self.phases: list[tuple[str, int]] = []
        self.timers: dict[str, float] = {}
        self.stopped: Stop | None = None
        self.persists = 0
        self.jobs: list[object] = []
        self.hold_persists = False
        self.held: deque[Persist] = deque()
        self.fail_with = ""
        self.role = Verifier(1, dataset)
        self.start()

    def start(self) -> None:
        """Launch it (again) with what the disk holds."""
        self.launch += 1
        self.timers.clear()
        self.held.clear()
        self.role = Verifier(self.launch, self.dataset, "", self.options)
        files = {name: self.disk.read(name) for name in (LINES_PATH, ARRAYS_PATH) if self.disk.exists(name)}
        self.give(Started("numerics", "verifier", files))

    def give(self, event: Event) -> None:
        events: deque[Event] = deque([event])
        while events:
            for effect in self.role.handle(self.now_ms, events.popleft()):
                events.extend(self._carry_out(effect))

    def report(self, source: str, launch: int, records: Sequence[Numbered]) -> None:
        self.give(Received(source, launch, Report(source, launch, tuple(records))))

    def release_persist(self) -> None:
        """Let the oldest persist that is held back return."""
        for event in self._persist(self.held.popleft()):
            self.give(event)

    def pass_time(self, milliseconds: float) -> None:
        """Fire what is due meanwhile."""
        end_ms = self.now_ms + milliseconds
        while self.timers and min(self.timers.values()) <= end_ms:
            name = min(self.timers, key=lambda timer: (self.timers[timer], timer))
            self.now_ms = self.timers.pop(name)
            self.give(TimerFired(name))
        self.now_ms = end_ms

    def conclude(self, expected: dict[str, dict[str, int | str]]) -> dict[str, Any] | None:
        """The verdict document, if it comes at once."""
        self.give(Received("driver", 0, Conclude(json.dumps(expected))))
        return self.verdict

    @property
    def verdict(self) -> dict[str, Any] | None:
        concluded = [message for to, message in self.sent if isinstance(message, Concluded) and to == "driver"]
        return json.loads(concluded[-1].verdict_json) if concluded else None

    def stored(self, source: str, launch: int = 1) -> int:
        """The last number that this reporter was told is stored; -1 when it was told nothing."""
        told = [message for to, message in self.sent if isinstance(message, Stored) and to == source]
        return [message.through for message in told if message.launch == launch][-1] if told else -1

    # ------------------------------------------------------------ inside

    def _carry_out(self, effect: Effect) -> Iterator[Event]:
        match effect:
            case Persist():
                self.persists += 1
                if self.hold_persists:
                    self.held.append(effect)
                else:
                    yield from self._persist(effect)
            case Compute(token, job):
                self.jobs.append(job)
                yield Computed(token, job())
            case Load(token, job):
                self.jobs.append(job)
                yield Loaded(token, job(self.disk))
            case Send(to, message):
                self.sent.append((to, message))
            case SetTimer(name, after_ms):
                self.timers[name] = self.now_ms + after_ms
            case Note(text):
                self.notes.append(text)
            case Phase(name, step):
                self.phases.append((name, step))
            case Stop():
                self.stopped = effect
            case _:
                raise AssertionError(effect)

    def _persist(self, persist: Persist) -> Iterator[Event]:
        if self.fail_with:
            yield PersistFailed(persist.token, self.fail_with, LINES_PATH)
            return
        for operation in persist.operations:
            self.disk.apply(operation)
        yield Persisted(persist.token)


def records_of(run: HonestRun) -> dict[tuple[str, int], list[Numbered]]:
    """What each reporter of the run has to report."""
    found: dict[tuple[str, int], list[Numbered]] = {}
    for told, number in run.numbered():
        found.setdefault((told.source, told.launch), []).append(fact_to_numbered(told.fact, number))
    return found


def expected_of(run: HonestRun) -> dict[str, dict[str, int | str]]:
    """What the driver tells at the end."""
    expected: dict[str, dict[str, int | str]] = {}
    for (source, launch), records in records_of(run).items():
        expected.setdefault(source, {})[str(launch)] = len(records)
    return expected


def save_dataset(disk: LossyDisk, content: bytes) -> None:
    for operation in (WriteFile("dataset.safetensors", content), SyncFile("dataset.safetensors"), SyncDir(".")):
        disk.apply(operation)


def report_all(bench: Bench, run: HonestRun, pieces: int = 1) -> None:
    """Every reporter in turn, in so many reports."""
    for (source, launch), records in records_of(run).items():
        size = -(-len(records) // pieces)
        for start in range(0, len(records), size):
            bench.report(source, launch, records[start : start + size])
