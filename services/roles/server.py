"""The parameter server: adds the contributions of a closed step in ascending worker id and publishes the sum.

It holds nothing authoritative: parameters live in the workers, decisions in the coordinator. Its death costs one
attempt. It sums nothing before the coordinator has closed the set of contributors.
"""

from __future__ import annotations

from services.any_config import UNREADABLE
from services.config import RunConfig
from services.events import (
    COORDINATOR,
    Effect,
    Event,
    Identify,
    Linked,
    Note,
    Phase,
    Received,
    Record,
    Send,
    SetTimer,
    Started,
    Stop,
    TimerFired,
    worker_name,
)
from services.exchange import Attempt, ContractBroken, Gather
from services.messages import Close, Enlist, Finish, Message, Part, Turned, Welcome
from services.parts import Early
from services.records import Refused, Summed
from training.models import parameter_count

ENLIST_RETRY_MS = 500.0


class Server:
    """See the module's docstring."""

    def __init__(self, launch: int) -> None:
        self.launch = launch
        self.generation = 0
        self._config: RunConfig | None = None
        self._address = ""
        self._numerics = ""
        self._gather: Gather | None = None
        self._published = 0
        self._early = Early()
        self._out: list[Effect] = []

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self._out = []
        match event:
            case Started(numerics, address):
                self._numerics, self._address = numerics, address
            case Linked(peer) if peer == COORDINATOR:
                self._enlist()
            case TimerFired("enlist") if self._config is None:
                self._enlist()
            case Received(source, _, message):
                self._received(source, message)
            case _:
                pass
        return self._out

    def _enlist(self) -> None:
        self._out.append(Send(COORDINATOR, Enlist(self._address, self._numerics)))
        self._out.append(SetTimer("enlist", ENLIST_RETRY_MS))

    def _received(self, source: str, message: Message) -> None:
        match message:
            case Part():
                self._part(source, message)
            case Welcome() if source == COORDINATOR:
                self._welcome(message)
            case Close() if source == COORDINATOR:
                self._close(message)
            case Finish(_, reason) if source == COORDINATOR:
                self._out.append(Stop("finished", reason))
            case Turned() if source == COORDINATOR:
                self._out.append(Stop("refused", message.reason))
            case _:
                self._refuse(source, message, "contract")

    def _welcome(self, message: Welcome) -> None:
        try:
            self._config = RunConfig.from_json(message.config_json)
        except UNREADABLE as error:
            self._out.append(Stop("refused", f"the run's configuration cannot be read: {error!r}"))
            return
        self._out.append(Identify(message.incarnation))

    def _refuse(self, source: str, message: Message, reason: str) -> None:
        generation, step = getattr(message, "generation", 0), getattr(message, "step", 0)
        what = type(message).__name__
        self._out.append(Record(Refused(what, source, 0, generation, step, reason, self.generation)))

    def _close(self, message: Close) -> None:
        if message.generation < self.generation or self._config is None:
            self._refuse(COORDINATOR, message, "old generation")
            return
        self.generation = message.generation
        key = (message.generation, message.step, message.attempt)
        if self._gather is not None and self._key(self._gather) >= key:
            return
        elements = parameter_count(self._config.model)
        self._gather = Gather(
            Attempt(
                message.generation, message.step, message.attempt, message.contributors, message.total, elements,
                self._config.chunk_elements,
            )
        )  # fmt: skip
        self._published = 0
        self._out.append(Phase("gathering", message.step))
        for source, part in self._early.take(message.generation, message.step, message.attempt):
            self._add(self._gather, source, part)

    def _key(self, gather: Gather) -> tuple[int, int, int]:
        """Generation first: after a rollback a step is tried again from attempt 0."""
        return gather.attempt.generation, gather.attempt.step, gather.attempt.attempt

    def _part(self, source: str, part: Part) -> None:
        gather, key = self._gather, (part.generation, part.step, part.attempt)
        if part.generation < self.generation:
            self._refuse(source, part, "old generation")
        elif self._config is None:
            self._refuse(source, part, "not welcomed yet")
        elif gather is None or key > self._key(gather):
            elements = parameter_count(self._config.model)
            if not self._early.keep(source, part, elements, self._config.chunk_elements):
                self._refuse(source, part, "contract")
        elif key == self._key(gather):
            self._add(gather, source, part)
        else:
            self._refuse(source, part, "late")

    def _add(self, gather: Gather, source: str, part: Part) -> None:
        workers = {worker_name(worker): worker for worker in gather.attempt.workers}
        if part.lane != "push" or source not in workers:
            self._refuse(source, part, "not a contributor")
            return
        try:
            done = gather.take(workers[source], part)
        except ContractBroken as broken:
            self._out.append(Note(f"refused a part from {source}: {broken}"))
            self._refuse(source, part, "contract")
            return
        if done is not None:
            self._publish(gather, done)

    def _publish(self, gather: Gather, done: Part) -> None:
        if self._published == 0:
            self._out.append(Phase("publishing", done.step))
            key = gather.attempt
            self._out.append(Record(Summed("server", key.step, key.attempt, key.generation, done.summed)))
        self._published += 1
        for worker in gather.attempt.workers:
            self._out.append(Send(worker_name(worker), done))
