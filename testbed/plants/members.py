"""Bugs in who takes part: fences, incarnations, steps."""

from __future__ import annotations

from services.events import worker_id
from services.messages import Message, Open
from services.roles.coordinator_core import CoordinatorCore
from services.roles.peers import MEMBER, Peer
from services.roles.stepping import Stepping
from services.roles.worker import Worker
from testbed.plants.registry import Patch, plant


@plant("fence-skipped", invariant="fencing", scenario="pause-past-lease")
def fence_skipped() -> list[Patch]:
    """A member that was declared dead comes back under its old incarnation, with its old state, and is let in."""
    open_step = Worker._open

    def refuse_stranger(self: CoordinatorCore, source: str, incarnation: int, message: Message) -> None:
        if not source.startswith("worker-") or self.peers.get(worker_id(source)) is not None:
            return
        self.peers.put(Peer(worker_id(source), incarnation, 1, source, MEMBER, self._now))
        self._regroup(f"{source} is back", self._resume)

    def catch_up(self: Worker, message: Open) -> None:
        if self.state is not None and message.step > self.step + 1:
            self._gradient = self._computing = self._exchange = self._held = self._commit = None
            self.step = message.step - 1
        open_step(self, message)

    return [(CoordinatorCore, "_refuse_stranger", refuse_stranger), (Worker, "_open", catch_up)]


@plant("step-repeated", invariant="step monotonicity")
def step_repeated() -> list[Patch]:
    """Nobody counts step 3: it is opened, computed and committed a second time."""
    open_next, apply = Stepping._open_next, Worker._apply
    repeated: set[int] = set()

    def open_again(self: Stepping) -> None:
        if self.step == 3 and id(self) not in repeated:
            repeated.add(id(self))
            self.step = 2
        open_next(self)

    def forget(self: Worker, state: object) -> None:
        before = self.step
        apply(self, state)  # type: ignore[arg-type]
        if self.step == 3 and before == 2 and id(self) not in repeated:
            repeated.add(id(self))
            self.step = 2

    return [(Stepping, "_open_next", open_again), (Worker, "_apply", forget)]
