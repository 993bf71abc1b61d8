"""Three toy roles that exercise the shell without any training: they run in real processes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from services.events import (
    COORDINATOR,
    VERIFIER,
    Compute,
    Computed,
    Effect,
    Event,
    Identify,
    Linked,
    Load,
    Loaded,
    Persist,
    Persisted,
    PersistFailed,
    Phase,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    worker_id,
)
from services.messages import (
    Conclude,
    Concluded,
    Finish,
    Join,
    Message,
    Offer,
    Open,
    Part,
    Ready,
    Report,
    Stored,
    Welcome,
)
from services.records import Finished, Summed
from services.shell.options import ShellOptions
from training.disk import Disk, MakeDir, SyncFile, WriteFile

INCARNATION = 7


def make(options: ShellOptions) -> Any:
    """The shell's factory."""
    settings = json.loads(options.settings_json)
    if options.role == COORDINATOR:
        return ToyCoordinator(settings)
    if options.role == VERIFIER:
        return ToyVerifier(settings)
    return ToyWorker(options, settings)


class Sum:
    """A job: the sum of the ids."""

    def __init__(self, ids: tuple[int, ...], inline: bool) -> None:
        self.ids = ids
        self.inline = inline

    def __call__(self) -> int:
        return sum(self.ids)


def read_back(disk: Disk) -> bytes:
    """A `Load` job."""
    return disk.read("log/1")


class ToyWorker:
    """Joins, answers every Open with an Offer (digest: sum of its samples) and every last Part with a Ready."""

    def __init__(self, options: ShellOptions, settings: dict[str, Any]) -> None:
        self.inline = settings.get("inline", False)
        self.worker = worker_id(options.role)
        self.launch = options.launch
        self.address = ""
        self.incarnation = 0

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        match event:
            case Started(_, address):
                self.address = address
            case Linked("coordinator") if self.incarnation == 0:
                return [Send(COORDINATOR, Join(self.worker, self.launch, self.address, ""))]
            case Received(_, _, message):
                return self.received(message)
            case Computed(token, result):
                offer = Offer(1, int(token), (), str(result), 0, finite=True, loss=0.0)
                return [Phase("offer", int(token)), Send(COORDINATOR, offer)]
        return []

    def received(self, message: Message) -> list[Effect]:
        match message:
            case Welcome(incarnation):
                self.incarnation = incarnation
                return [Identify(incarnation)]
            case Open():
                return [Compute(str(message.step), Sum(message.sample_ids, self.inline))]
            case Part() if message.index == message.count - 1:
                return [Send(COORDINATOR, Ready(1, message.step, 0, (), "", str(message.total), finite=True))]
            case Finish():
                return [Stop("finished", "told so")]
        return []


class ToyCoordinator:
    """Welcomes one worker and runs `steps` rounds: open, offer, persist, record; or `rounds` of `parts` parts."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.settings = settings
        self.steps = settings.get("steps", 3)
        self.step = 0
        self.worker = ""
        self.ticks = 0
        self.times_ms: list[float] = []
        self.data = np.zeros(settings.get("part_elements", 0))

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        match event:
            case Started() | TimerFired("tick"):
                self.ticks += 1
                return [SetTimer("tick", 10.0)]
            case TimerFired("begin"):
                return self.open(now_ms)
            case Received():
                return self.received(now_ms, event)
            case Persisted(token):
                record = Record(Summed(f"ticks {self.ticks}", int(token), 0, 1, (1, 2)))
                return [record, Load(token, read_back)]
            case Loaded(_, content, error):
                assert (content, error) == (b"11", "")
                return self.open(now_ms)
            case PersistFailed(_, error_name, path):
                return [Stop("disk", f"{error_name} {path}")]
        return []

    def received(self, now_ms: float, event: Received) -> list[Effect]:
        match event.message:
            case Join():
                self.worker = event.source
                return [Send(self.worker, Welcome(INCARNATION, 1, "{}", 0)), SetTimer("begin", 50.0)]
            case Offer() as offer:
                assert event.incarnation == INCARNATION
                return self.offered(now_ms, offer)
            case Ready():
                return self.open(now_ms)
        return []

    def offered(self, now_ms: float, offer: Offer) -> list[Effect]:
        if self.settings.get("measure"):
            return self.open(now_ms)
        name = self.settings.get("outside", "") + f"log/{offer.step}"
        plan = (MakeDir("log"), WriteFile(name, offer.digest.encode()), SyncFile(name))
        return [Persist(str(offer.step), plan, f"open {offer.step}")]

    def open(self, now_ms: float) -> list[Effect]:
        self.step += 1
        self.times_ms.append(now_ms)
        if self.step == self.settings.get("crash_at", 0):
            raise RuntimeError("crash as asked")
        if self.step > self.steps:
            return self.finish()
        if self.data.size:
            return [Send(self.worker, part) for part in self.parts()]
        return [Phase("open", self.step), Send(self.worker, Open(1, self.step, 0, (self.step, 10)))]

    def parts(self) -> list[Part]:
        count = self.settings.get("parts", 1)
        size = self.data.size
        return [
            Part(1, self.step, 0, "lap", index, count, index * size, count * size, (1,), self.data)
            for index in range(count)
        ]

    def finish(self) -> list[Effect]:
        gaps = np.diff(self.times_ms)[len(self.times_ms) // 5 :]
        figures = json.dumps({"median_ms": float(np.median(gaps)), "mean_ms": float(np.mean(gaps))})
        condition = self.settings.get("condition", "finished")
        return [Record(Finished(self.steps, condition)), Send(self.worker, Finish(1, "")), Stop(condition, figures)]


class ToyVerifier:
    """Stores everything at once, unless told to store nothing; concludes with the count of records."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.deaf = settings.get("deaf", False)
        self.last: dict[str, int] = {}

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        match event:
            case Received(source, _, Report(_, launch, records)):
                last = self.last.get(source, 0)
                for record in records:
                    last = max(last, record.sequence)
                self.last[source] = last
                return [] if self.deaf else [Send(source, Stored(source, launch, last))]
            case Received(source, _, Conclude()):
                return [Send(source, Concluded(json.dumps(self.last))), Stop("finished", "concluded")]
        return []
