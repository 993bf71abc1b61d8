"""Layer-sharded runs in the simulated world, with kills at armed holds and relaunches, for the tests beside this."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

from services.events import COORDINATOR, VERIFIER, Stop, shard_name
from services.host import Hold, HoldReached, Role
from services.records import Fact, ShardsEvaluated, ShardsSwapped
from services.roles.shard import Shard
from services.roles.shard_coordinator import ShardCoordinator
from services.roles.verifier import Verifier
from services.shard_config import ShardRunConfig
from testbed.engines.sim_world import World
from training.adamw import AdamWConfig
from training.corpus_bytes import corpus_to_bytes
from training.digest import array_digest
from training.disk import LossyDisk
from training.optimizers import start, update
from training.tokens import Corpus, batch_generator, draw_batch, evaluation_batch, text_corpus
from training.transformer.config import TransformerConfig
from training.transformer.initial import initial_parameters
from training.transformer.sharding import cut, split_parameters
from training.transformer.step import central_gradient, central_loss

TEXT = "the quick brown fox jumps over the lazy dog, and the dog does not mind; " * 3
CORPUS = text_corpus("fox", TEXT)
MODEL = TransformerConfig(CORPUS.vocabulary_size, block_count=3, width=8, head_count=2, mlp_width=8, context=12)
CALLS_MAX = 200_000


def config(**changes: Any) -> ShardRunConfig:
    """A small run of 4 steps over 3 shards."""
    settings: dict[str, Any] = {
        "run_id": "t", "seed": 3, "steps": 4, "model": MODEL, "cuts": (1, 2), "batch": 5, "micro_batches": 2,
        "optimizer": AdamWConfig(), "dataset_name": "fox", "dataset_sha256": CORPUS.sha256, "evaluate_every": 2,
        "evaluation_contexts": 4, **changes,
    }  # fmt: skip
    return ShardRunConfig(**settings)


@dataclass
class Outcome:
    """What a run came to."""

    facts: list[tuple[str, Fact]] = field(default_factory=list)
    stop: Stop | None = None
    killed: list[str] = field(default_factory=list)
    disk: LossyDisk = field(default_factory=LossyDisk)

    def of(self, kind: type[Any]) -> list[Any]:
        return [fact for _, fact in self.facts if isinstance(fact, kind)]

    @property
    def digests(self) -> tuple[str, ...]:
        """Parameters of each shard at the end."""
        return tuple(row[2] for row in self.of(ShardsSwapped)[-1].swapped)

    @property
    def evaluations(self) -> dict[int, float]:
        return {fact.step: fact.loss for fact in self.of(ShardsEvaluated)}


def run(settings: ShardRunConfig, holds: Sequence[Hold] = (), corpus: Corpus = CORPUS) -> Outcome:
    """Every hold is a kill, and every killed role is started again."""
    return _Run(settings, holds, corpus_to_bytes(corpus)).outcome


class _Run:
    def __init__(self, settings: ShardRunConfig, holds: Sequence[Hold], blob: bytes) -> None:
        self.settings, self.holds, self.blob = settings, holds, blob
        self.outcome = Outcome()
        self.world = World(settings.seed, settings, "numerics", self.outcome.disk, self._watch)
        for hold in holds:
            self.world.arm(hold)
        for name in (VERIFIER, COORDINATOR, *(shard_name(shard) for shard in range(1, settings.workers + 1))):
            self.world.launch(name, self._maker(name))
        self._go()

    def _go(self) -> None:
        for _ in range(CALLS_MAX):
            if self.outcome.stop is not None or not self.world.step():
                return
        raise AssertionError(f"the run did not end: {self.outcome.facts[-3:]}")

    def _maker(self, name: str) -> Callable[[int], Role]:
        if name == COORDINATOR:
            return lambda launch: ShardCoordinator(self.settings, launch, self.blob)
        if name == VERIFIER:
            return lambda launch: Verifier(launch, self.blob)
        return lambda launch: Shard(int(name.removeprefix("shard-")), launch)

    def _watch(self, name: str, thing: object) -> None:
        if isinstance(thing, HoldReached):
            self.world.after(0.5, lambda: self._kill(thing.hold))
        elif isinstance(thing, Stop):
            self.outcome.stop = thing if name == COORDINATOR else self.outcome.stop
        elif isinstance(thing, get_args(Fact)):
            self.outcome.facts.append((name, thing))

    def _kill(self, hold: Hold) -> None:
        self.world.kill(hold.role)
        self.outcome.killed.append(hold.role)
        self.world.after(5.0, lambda: self._again(hold))

    def _again(self, hold: Hold) -> None:
        self.world.launch(hold.role, self._maker(hold.role))
        for other in self.holds:
            if other.role == hold.role and other != hold:
                self.world.arm(other)


def central(settings: ShardRunConfig, corpus: Corpus = CORPUS) -> tuple[tuple[str, ...], float]:
    """Digests of each shard's part of the centrally trained model, and its evaluation loss."""
    (spec,) = cut(settings.model, ())
    parameters = initial_parameters(spec, settings.seed)
    moments, generator = start(settings.optimizer, parameters.size), batch_generator(settings.seed)
    for _ in range(settings.steps):
        batch, generator = draw_batch(corpus.train, settings.batch, settings.model.context, generator)
        _, gradient = central_gradient(spec, parameters, batch.inputs, batch.targets, settings.micro_batches)
        parameters, moments = update(settings.optimizer, parameters, moments, gradient)
    evaluation = evaluation_batch(corpus.evaluation, settings.evaluation_contexts, settings.model.context)
    digests = tuple(array_digest(part) for part in split_parameters(settings.specs, parameters))
    return digests, central_loss(spec, parameters, evaluation.inputs, evaluation.targets)
