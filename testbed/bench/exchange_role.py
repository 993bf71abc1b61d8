"""Roles that do nothing but the exchange: the production's ring and server, one all-reduce after the other.

A worker begins the next one as soon as it holds the finished value of this one, as a loop of all_reduce calls does.
There is no coordinator, no optimizer and no record: what is timed is the exchange and the links that carry it. Times
are those of the role's clock, from one completion to the next.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from services.config import RunConfig
from services.events import (
    SERVER,
    Effect,
    Event,
    Persist,
    Persisted,
    Received,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    worker_id,
    worker_name,
)
from services.exchange import Attempt, Gather, PushExchange, RingExchange
from services.host import Role
from services.messages import Array, Part, Share
from services.shell.options import ShellOptions
from training.disk import WriteFile

FACTORY = "testbed.bench.exchange_role:make_role"
WARM_UP_TURNS = 3
LINGER_MS = 1000.0  # others may still need what this one has in its outboxes


def default_chunk_elements() -> int:
    """What a run cuts its gradients into unless it is told otherwise."""
    default = {item.name: item.default for item in fields(RunConfig)}["chunk_elements"]
    assert isinstance(default, int)
    return default


@dataclass(frozen=True, slots=True)
class Turns:
    """Which all-reduce is the how manieth: `plan` lists (elements, counted turns); some to warm up come before."""

    workers: int
    plan: tuple[tuple[int, int], ...]
    chunk_elements: int

    @property
    def count(self) -> int:
        """Of all turns."""
        return sum(WARM_UP_TURNS + turns for _, turns in self.plan)

    def elements(self, turn: int) -> int:
        """Of the array that turn `turn`, from 1, reduces."""
        return self.plan[self.place(turn)][0]

    def place(self, turn: int) -> int:
        """Where in `plan` the turn belongs."""
        for place, (_, turns) in enumerate(self.plan):
            turn -= WARM_UP_TURNS + turns
            if turn <= 0:
                return place
        raise IndexError("no such turn")

    def attempt(self, turn: int) -> Attempt:
        """The turn as an attempt of a step of that number; everybody has one sample."""
        shares = tuple(Share(worker, 1, 1) for worker in range(1, self.workers + 1))
        return Attempt(1, turn, 0, shares, self.workers, self.elements(turn), self.chunk_elements)


class Reducing:
    """A worker. Result: per entry of the plan, milliseconds of every counted turn and the last value's digest."""

    def __init__(self, worker: int, strategy: str, turns: Turns) -> None:
        self._worker = worker
        self._strategy = strategy
        self._turns = turns
        self._turn = 0
        self._began_ms = 0.0
        self._gradient: Array = np.zeros(0)
        self._exchange: RingExchange | PushExchange | None = None
        self._took_ms: list[list[float]] = [[] for _ in turns.plan]
        self._digests = [""] * len(turns.plan)
        self._out: list[Effect] = []

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        """One event; see `services.events`."""
        self._out = []
        match event:
            case Started():
                self._next(now_ms)
            case Received(_, _, Part() as part):
                self._take(now_ms, part)
            case Persisted():
                self._out.append(SetTimer("linger", LINGER_MS))
            case TimerFired():
                self._out.append(Stop("finished"))
            case _:
                pass
        return self._out

    def _next(self, now_ms: float) -> None:
        self._turn += 1
        self._began_ms = now_ms
        if self._turn > self._turns.count:
            self._exchange = None
            self._out.append(_result(worker_name(self._worker), {"ms": self._took_ms, "digests": self._digests}))
            return
        attempt = self._turns.attempt(self._turn)
        if self._gradient.size != attempt.element_count:
            self._gradient = np.random.default_rng(self._worker).standard_normal(attempt.element_count)
        if self._strategy == "ps":
            self._exchange = push = PushExchange(attempt, self._worker, self._gradient)
            self._out.extend(Send(SERVER, part) for part in push.begin())
        else:
            self._exchange = ring = RingExchange(attempt, self._worker, self._gradient)
            self._pass_on(ring.begin())

    def _take(self, now_ms: float, part: Part) -> None:
        exchange = self._exchange
        if exchange is None or part.step != self._turn:
            raise AssertionError(f"a part of turn {part.step} in turn {self._turn}")
        if isinstance(exchange, PushExchange):
            exchange.take(part)
        else:
            self._pass_on(exchange.take(part))
        if exchange.finished.complete:
            place = self._turns.place(self._turn)
            self._took_ms[place].append(now_ms - self._began_ms)
            self._digests[place] = exchange.finished.digest
            self._next(now_ms)

    def _pass_on(self, sends: Iterator[tuple[int, Part] | None]) -> None:
        self._out.extend(Send(worker_name(send[0]), send[1]) for send in sends if send is not None)


class Gathering:
    """The parameter server."""

    def __init__(self, turns: Turns) -> None:
        self._turns = turns
        self._gathers: dict[int, Gather] = {}
        self._published: dict[int, int] = {}
        self._out: list[Effect] = []

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        """One event; see `services.events`."""
        self._out = []
        match event:
            case Received(source, _, Part() as part):
                self._take(worker_id(source), part)
            case Persisted():
                self._out.append(SetTimer("linger", LINGER_MS))
            case TimerFired():
                self._out.append(Stop("finished"))
            case _:
                pass
        return self._out

    def _take(self, worker: int, part: Part) -> None:
        if part.step not in self._gathers:
            self._gathers[part.step] = Gather(self._turns.attempt(part.step))
        done = self._gathers[part.step].take(worker, part)
        if done is None:
            return
        self._out.extend(Send(worker_name(worker), done) for worker in range(1, self._turns.workers + 1))
        self._published[part.step] = published = self._published.get(part.step, 0) + 1
        if published == done.count:
            del self._gathers[part.step], self._published[part.step]
            if part.step == self._turns.count:
                self._out.append(_result(SERVER, {}))


def make_role(options: ShellOptions) -> Role:
    """Factory for the shell. Settings: strategy, workers, plan, chunk_elements."""
    settings = json.loads(options.settings_json)
    plan = tuple((int(elements), int(turns)) for elements, turns in settings["plan"])
    turns = Turns(settings["workers"], plan, settings["chunk_elements"])
    if options.role == SERVER:
        return Gathering(turns)
    return Reducing(worker_id(options.role), settings["strategy"], turns)


def _result(role: str, document: dict[str, Any]) -> Persist:
    return Persist("result", (WriteFile(f"{role}.json", json.dumps(document).encode()),), "the result")
