"""A worker that is on its way in and is asked again goes on with what comes in, and gives its proof again."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from services.events import COORDINATOR, Compute, Computed, Effect, Linked, Received, Send, Started
from services.jobs import State
from services.messages import Adopt, DataPart, Fetch, Message, Proved, Welcome
from services.parts import WINDOW_PARTS, state_parts
from services.roles.worker import Worker
from tests.services.roles.coordinator_bench import DATASET, Bench, zeros
from training.datasets import dataset_to_bytes

STATE = State.of(zeros() + 0.5, np.arange(float(zeros().size)))
ADOPT = Adopt(3, 7, STATE.parameters_digest, STATE.velocity_digest, COORDINATOR, "")


class Joiner:
    """Worker 1, which holds the data; its computations are run at once, except while `slow`."""

    def __init__(self) -> None:
        self.worker = Worker(1, 1)
        self.slow = False
        self.waiting: list[Compute] = []
        self.sent: list[Message] = []
        config = replace(Bench().config, chunk_elements=1)
        self.feed(Started("numerics"))
        self.feed(Linked(COORDINATOR, 1))
        blob = dataset_to_bytes(DATASET)
        self.hear(Welcome(5, 3, config.to_json(), len(blob)))
        self.hear(DataPart(0, len(blob), blob))

    def hear(self, message: Message) -> list[Message]:
        """What it sends when the coordinator says this."""
        before = len(self.sent)
        self.feed(Received(COORDINATOR, 1, message))
        return self.sent[before:]

    def feed(self, event: object) -> None:
        for effect in self.worker.handle(0.0, event):  # type: ignore[arg-type]
            self._carry_out(effect)

    def _carry_out(self, effect: Effect) -> None:
        if isinstance(effect, Send):
            self.sent.append(effect.message)
        elif isinstance(effect, Compute) and self.slow:
            self.waiting.append(effect)
        elif isinstance(effect, Compute):
            self.feed(Computed(effect.token, effect.job()))

    def parts_of(self, fetch: Fetch) -> list[Message]:
        return list(state_parts(STATE, fetch, 1))


def test_what_comes_in_goes_on_when_it_is_asked_again() -> None:
    joiner = Joiner()
    (fetch,) = joiner.hear(ADOPT)
    assert isinstance(fetch, Fetch)
    for part in joiner.parts_of(fetch)[:3]:
        assert joiner.hear(part) == []
    assert joiner.hear(ADOPT) == []  # something came in since
    (again,) = joiner.hear(ADOPT)  # nothing did
    assert again == replace(fetch, first=3)


def fetched(joiner: Joiner) -> None:
    (fetch,) = joiner.hear(ADOPT)
    for _ in range(2 * zeros().size // WINDOW_PARTS + 1):
        assert isinstance(fetch, Fetch)
        asked = [message for part in joiner.parts_of(fetch) for message in joiner.hear(part)]
        fetch = asked[-1] if asked else fetch


@pytest.mark.parametrize("times", [1, 3])
def test_a_proof_under_way_is_not_begun_again_and_one_that_was_given_is_given_again(times: int) -> None:
    joiner = Joiner()
    joiner.slow = True
    fetched(joiner)
    (job,) = joiner.waiting
    for _ in range(times):
        assert joiner.hear(ADOPT) == []
    assert joiner.waiting == [job]
    joiner.feed(Computed(job.token, job.job()))
    proof = Proved(3, 7, STATE.parameters_digest, STATE.velocity_digest)
    assert joiner.sent[-1] == proof
    for _ in range(times):
        assert joiner.hear(ADOPT) == [proof]
