"""Two toy roles that exercise the shell without any training: they run in real processes."""

from __future__ import annotations

import json
from typing import Any

import numpy as np

from services.events import (
    COORDINATOR,
    Compute,
    Computed,
    Effect,
    Event,
    Identify,
    Linked,
    Persist,
    Persisted,
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
from services.messages import Applied, Commit, Finish, Join, Offer, Open, Part, Ready, Welcome
from services.records import Finished, Summed
from services.shell.options import ShellOptions
from training.disk import MakeDir, SyncFile, WriteFile


def make(options: ShellOptions) -> Any:
    settings = json.loads(options.settings_json)
    if options.role == COORDINATOR:
        return ToyCoordinator(settings)
    return ToyWorker(options, settings)


class Sum:
    """A job: the sum of the ids."""

    inline = False

    def __init__(self, ids: tuple[int, ...]) -> None:
        self.ids = ids

    def __call__(self) -> int:
        return sum(self.ids)


class ToyWorker:
    """Joins, and answers every Open with an Offer whose digest is the sum of its samples."""

    def __init__(self, options: ShellOptions, settings: dict[str, Any]) -> None:
        self.worker = worker_id(options.role)
        self.launch = options.launch
        self.address = ""

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        match event:
            case Started(_, address):
                self.address = address
                return [SetTimer("join", 1.0)]
            case TimerFired("join") | Linked("coordinator"):
                return [Send(COORDINATOR, Join(self.worker, self.launch, self.address, ""))]
            case Received(_, _, Welcome() as welcome):
                return [Identify(welcome.incarnation)]
            case Received(_, _, Open() as message):
                return [Compute(str(message.step), Sum(message.sample_ids))]
            case Computed(token, result):
                offer = Offer(1, int(token), (), str(result), 0, True, 0.0)
                return [Phase("offer", int(token)), Send(COORDINATOR, offer)]
            case Received(_, _, Part() as part):
                return [Send(COORDINATOR, Ready(1, part.step, 0, (), "", str(part.data.size), True))]
            case Received(_, _, Finish()):
                return [Stop("finished", "told so")]
        return []


class ToyCoordinator:
    """Welcomes one worker, runs `steps` rounds, persists each, records it, and finishes."""

    def __init__(self, settings: dict[str, Any]) -> None:
        self.steps = settings.get("steps", 3)
        self.part_elements = settings.get("part_elements", 0)
        self.crash_at = settings.get("crash_at", 0)
        self.step = 0
        self.worker = ""

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        match event:
            case Received(source, _, Join()):
                self.worker = source
                return [Send(source, Welcome(7, 1, "{}", 0)), SetTimer("begin", 1.0)]
            case TimerFired("begin"):
                return self.open()
            case Received(_, incarnation, Offer() as offer):
                assert incarnation == 7, incarnation
                plan = (
                    MakeDir("log"),
                    WriteFile(f"log/{offer.step}", offer.digest.encode()),
                    SyncFile(f"log/{offer.step}"),
                )
                return [Persist(str(offer.step), plan, f"open {offer.step}")]
            case Persisted(token):
                return [Record(Summed("coordinator", int(token), 0, 1, (1, 2))), *self.open()]
        return []

    def open(self) -> list[Effect]:
        self.step += 1
        if self.step == self.crash_at:
            raise RuntimeError("crash as asked")
        if self.step <= self.steps:
            return [Phase("open", self.step), Send(self.worker, Open(1, self.step, 0, (self.step, 10)))]
        return [
            Record(Finished(self.steps, "finished")),
            Send(self.worker, Finish(1, "")),
            Stop("finished", "all steps"),
        ]


_ = (np, Applied, Commit)
