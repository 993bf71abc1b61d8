"""A coordinator on a bench: everything it asks of its shell is answered at once, its members are played by the test."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, TypeVar

import numpy as np

from services import decision_log
from services.config import RunConfig
from services.events import (
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
    Record,
    Send,
    Started,
)
from services.jobs import GradientJob
from services.messages import Adopt, Applied, DataHeld, Join, Message, Offer, Open, Proved, Ready
from services.records import Fact, Refused
from services.roles.coordinator import Coordinator
from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.datasets import DatasetSpec, dataset_to_bytes, load_dataset
from training.disk import LossyDisk
from training.models import initial_parameters

FactT = TypeVar("FactT", bound=Fact)
MessageT = TypeVar("MessageT", bound=Message)

DATASET = load_dataset(DatasetSpec("blobs", 1, 23, 4, 3))
MODEL = ModelConfig("softmax", 4, 3)


class Bench:
    """Three workers who have joined; step 1 is open."""

    def __init__(self, workers: int = 3) -> None:
        self.config = RunConfig(
            run_id="bench", seed=1, strategy="ring", workers=workers, steps=4, model=MODEL,
            optimizer=OptimizerConfig(0.1, 0.9), batch=BatchConfig("per_worker", 2), dataset_name="blobs",
            dataset_sha256=DATASET.sha256, sample_count=23,
        )  # fmt: skip
        self.coordinator = Coordinator(self.config, 1, dataset_to_bytes(DATASET))
        self.disk = LossyDisk()
        self.facts: list[Fact] = []
        self.sent: list[Send] = []
        self.persists: list[str] = []
        self.feed(Started("numerics"))
        for worker in range(1, workers + 1):
            self.hear(worker, Join(worker, 1, f"10.0.0.{worker}:1", "numerics"), 0)
            self.feed(Linked(f"worker-{worker}", worker))
            self.hear(worker, DataHeld(worker, DATASET.sha256, "numerics"))
        for worker in range(1, workers + 1):
            adopt = self.last(worker, Adopt)
            self.hear(worker, Proved(adopt.generation, adopt.step, adopt.parameters_digest, adopt.velocity_digest))

    def relaunched(self) -> None:
        """The coordinator dies, with what it recorded, and a new one comes back from what is on the disk."""
        self.coordinator = Coordinator(self.config, 2, dataset_to_bytes(DATASET))
        self.facts.clear()
        self.feed(Started("numerics", files={decision_log.PATH: self.disk.read(decision_log.PATH)}))

    # ------------------------------------------------------------ the shell

    def feed(self, event: Event) -> None:
        waiting: list[Event] = [event]
        while waiting:
            for effect in self.coordinator.handle(0.0, waiting.pop(0)):
                waiting.extend(self._answer(effect))

    def _answer(self, effect: Effect) -> Iterator[Event]:
        match effect:
            case Persist(token, operations, what):
                for operation in operations:
                    self.disk.apply(operation)
                self.persists.append(what)
                yield Persisted(token)
            case Compute(token, job):
                yield Computed(token, job())
            case Load(token, job):
                yield Loaded(token, job(self.disk))
            case Record(fact):
                self.facts.append(fact)
            case Send():
                self.sent.append(effect)
            case _:
                pass

    # ------------------------------------------------------------ the members

    def hear(self, worker: int, message: Message, incarnation: int | None = None) -> list[Refused]:
        """A worker says something; the refusals that follow. Its incarnation is its number."""
        before = len(self.facts)
        self.feed(Received(f"worker-{worker}", worker if incarnation is None else incarnation, message))
        return [fact for fact in self.facts[before:] if isinstance(fact, Refused)]

    def last(self, worker: int, kind: type[MessageT]) -> MessageT:
        """The newest message of this kind to that worker."""
        found = [one.message for one in self.sent if one.to == f"worker-{worker}" and isinstance(one.message, kind)]
        message: Any = found[-1]
        return message  # type: ignore[no-any-return]

    def offer(self, worker: int) -> Offer:
        """An honest offer of the open step."""
        told = self.last(worker, Open)
        job = GradientJob(MODEL, DATASET, initial_parameters(MODEL, 1), told.sample_ids)
        found = job()
        size = found.value.size
        return Offer(told.generation, told.step, told.sample_ids, found.digest, size, finite=True, loss=found.loss)

    def ready(self, worker: int, reduced_digest: str = "r" * 64) -> Ready:
        """An honest `ready` in the first attempt."""
        offer = self.offer(worker)
        return Ready(offer.generation, offer.step, 0, offer.sample_ids, offer.digest, reduced_digest, finite=True)

    def applied(self, step: int = 1, digest: str = "p" * 64) -> Applied:
        return Applied(self.coordinator.generation, step, digest, digest)

    def told(self, kind: type[FactT]) -> list[FactT]:
        return [fact for fact in self.facts if isinstance(fact, kind)]


def zeros() -> Any:
    """A value of the model's size."""
    return np.zeros(MODEL.feature_count * MODEL.class_count + MODEL.class_count)
