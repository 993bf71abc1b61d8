"""No message, from whoever it claims to be, makes a role raise: everything is answered, refused or left alone."""

from __future__ import annotations

import warnings
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from services.events import (
    COORDINATOR,
    Compute,
    Computed,
    Effect,
    Event,
    Linked,
    Load,
    Loaded,
    Persist,
    Persisted,
    Received,
    Started,
)
from services.messages import Close, DataPart, Message, Open, Part, Regroup, Share, Welcome
from services.roles.server import Server
from services.roles.verifier import Verifier
from services.roles.worker import Worker
from tests.fuzz.drawn import MESSAGES, NAMES
from tests.services.roles.coordinator_bench import DATASET, Bench, zeros
from training.datasets import dataset_to_bytes
from training.disk import LossyDisk

BLOB = dataset_to_bytes(DATASET)
CONFIG = Bench().config.to_json()
SHARES = (Share(1, 1, 2), Share(2, 2, 2))
CLOSE = Close(1, 1, 0, SHARES, 4, ())


class Shelf:
    """A role whose computations, disk and loads are answered at once, as a shell would."""

    def __init__(self, role: Any) -> None:
        self.role = role
        self.disk = LossyDisk()

    def feed(self, event: Event) -> None:
        waiting = [event]
        while waiting:
            for effect in self.role.handle(0.0, waiting.pop(0)):
                waiting.extend(self._answers(effect))

    def _answers(self, effect: Effect) -> list[Event]:
        match effect:
            case Persist(token, operations, _):
                for operation in operations:
                    self.disk.apply(operation)
                return [Persisted(token)]
            case Compute(token, job):
                return [Computed(token, *_outcome(job))]
            case Load(token, job):
                return [Loaded(token, *_outcome(lambda: job(self.disk)))]
        return []


def _outcome(job: Callable[[], Any]) -> tuple[Any, str]:
    try:
        return job(), ""
    except Exception as error:  # noqa: BLE001 - as the shell's threads: the role is told what its job raised
        return None, f"{type(error).__name__}: {error}"


def told(role: Any, *messages: Message) -> Shelf:
    """A role that its coordinator has told this."""
    shelf = Shelf(role)
    shelf.feed(Started("numerics"))
    shelf.feed(Linked(COORDINATOR, 1))
    for message in messages:
        shelf.feed(Received(COORDINATOR, 1, message))
    return shelf


def idle_worker() -> Shelf:
    return told(Worker(1, 1), Welcome(1, 1, CONFIG, len(BLOB)), DataPart(0, len(BLOB), BLOB))


def working_worker() -> Shelf:
    from services.jobs import State
    from services.messages import Adopt

    state = State.of(zeros(), zeros())
    shelf = idle_worker()
    for message in (
        Adopt(1, 0, state.parameters_digest, state.velocity_digest, COORDINATOR, ""),
        Part(1, 0, 0, "state", 0, 1, 0, 2 * zeros().size, (), zeros().repeat(2)),
        Regroup(1, ()),
        Open(1, 1, 0, (3, 4)),
        CLOSE,
    ):
        shelf.feed(Received(COORDINATOR, 1, message))
    assert shelf.role._exchange is not None
    return shelf


def coordinator() -> Any:
    return Bench()


def verifier() -> Shelf:
    shelf = Shelf(Verifier(1, BLOB, CONFIG))
    shelf.feed(Started("numerics"))
    return shelf


ROLES: dict[str, Callable[[], Any]] = {
    "coordinator": coordinator,
    "worker that joins": lambda: told(Worker(1, 1)),
    "worker with data": idle_worker,
    "worker in a step": working_worker,
    "server": lambda: told(Server(1), Welcome(1, 1, CONFIG, 0)),
    "server that gathers": lambda: told(Server(1), Welcome(1, 1, CONFIG, 0), CLOSE),
    "verifier": verifier,
}
SAID = st.lists(st.tuples(st.sampled_from(NAMES), st.integers(0, 3), MESSAGES), min_size=1, max_size=6)


@pytest.mark.parametrize("name", ROLES)
def test_whatever_is_said_no_role_raises(name: str) -> None:
    @settings(max_examples=300, phases=(Phase.generate,))  # to make an example small takes longer than to find it
    @given(said=SAID)
    def attack(said: list[tuple[str, int, Message]]) -> None:
        role = ROLES[name]()
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            for source, incarnation, message in said:
                role.feed(Received(source, incarnation, message))

    attack()
