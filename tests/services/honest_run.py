"""A small training run told as facts, for tests of the judge: no roles, no messages, just what honest ones record.

`HonestRun(...)` makes the facts at once, in the order in which things happen. A test then plants a mistake, either in
what happens (`Plan`'s hooks) or in what is told (`replace`, `drop`, `insert`), and judges.
"""

from __future__ import annotations

import dataclasses
import json
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from services.config import RunConfig
from services.fact_codec import fact_to_numbered
from services.history import HistoryLine, encode_line
from services.judge import Judge
from services.messages import Array
from services.records import (
    Admitted,
    CheckpointWritten,
    Closed,
    Committed,
    Contributed,
    Died,
    Durable,
    Ended,
    Expectation,
    Fact,
    Finished,
    Opened,
    Proven,
    Published,
    Recovered,
    Reduced,
    Regrouped,
    RolledBack,
    RunStarted,
    StateApplied,
    StepApplied,
)
from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.datasets import Dataset, DatasetSpec, dataset_to_bytes, load_dataset
from training.digest import array_digest
from training.models import initial_parameters, loss_and_gradient
from training.optimizer import apply_sgd
from training.reduction import reduce_in_order
from training.sampler import Sampler, SamplerState

COORDINATOR = "coordinator"
LOGGED = {"append": 1, "sync_file": 1}
SAVED = {"make_dir": 2, "write": 2, "sync_file": 2, "rename": 1, "sync_dir": 3}
PUBLISHED = {"write": 1, "append": 1, "sync_file": 2, "rename": 1, "sync_dir": 1}
STARTED = {"write": 1, "sync_file": 1, "rename": 1, "sync_dir": 1}

SOFTMAX = ModelConfig("softmax", 4, 3)
THREE_EACH = BatchConfig("per_worker", 3)

Deal = dict[int, tuple[int, ...]]  # worker -> sample ids
Parts = list[tuple[int, int, Array]]  # worker, sample count, gradient


def _keep_gradient(step: int, worker: int, gradient: Array) -> Array:
    return gradient


def _reduce(step: int, parts: Parts) -> Array:
    return reduce_in_order(parts)


def _keep_deal(step: int, dealt: Deal) -> Deal:
    return dealt


@dataclass(frozen=True)
class Plan:
    """Sizes, what goes wrong by schedule, and hooks for what goes wrong by mistake."""

    workers: int = 3
    steps: int = 6
    model: ModelConfig = SOFTMAX
    batch: BatchConfig = THREE_EACH
    momentum: float = 0.9
    learning_rate: float = 0.1
    samples: int = 40
    seed: int = 7
    checkpoint_every: int = 2
    whole: bool = True  # contributions are recorded with their gradients
    dies: dict[int, int] = field(default_factory=dict)  # step -> worker that dies between offer and reduce
    joins: dict[int, int] = field(default_factory=dict)  # step -> worker that joins before it
    rolls_back_after: int = 0  # after this step everybody dies, once
    coordinator_returns_after: tuple[int, ...] = ()  # after these steps the coordinator is relaunched
    spoils: dict[int, int] = field(default_factory=dict)  # step -> worker whose gradient is not finite
    skips: dict[int, int] = field(default_factory=dict)  # step -> worker that is blamed although all is finite
    deal: Callable[[int, Deal], Deal] = _keep_deal
    gradient: Callable[[int, int, Array], Array] = _keep_gradient
    reduced: Callable[[int, Parts], Array] = _reduce


@dataclass(frozen=True)
class Told:
    source: str
    launch: int
    fact: Fact


@dataclass
class State:
    parameters: Array
    velocity: Array

    @property
    def digests(self) -> tuple[str, str]:
        return array_digest(self.parameters), array_digest(self.velocity)


class HonestRun:
    """`told` is the run; `lines()` numbers it; `judge()` judges it."""

    def __init__(self, plan: Plan | None = None) -> None:
        self.plan = plan = plan or Plan()
        spec = DatasetSpec("blobs", 3, plan.samples, plan.model.feature_count, plan.model.class_count)
        self.data: Dataset = load_dataset(spec)
        self.dataset = dataset_to_bytes(self.data)
        self.config = RunConfig(
            "run-1", plan.seed, "ring", plan.workers, plan.steps, plan.model,
            OptimizerConfig(plan.learning_rate, plan.momentum), plan.batch, "blobs", self.data.sha256, plan.samples,
            checkpoint_every=plan.checkpoint_every,
        )  # fmt: skip
        self.told: list[Told] = []
        self.generation = 0
        self.incarnations = 0
        self.members: dict[int, int] = {}
        self.launch = 1
        self.log: list[Fact] = []
        self.checkpoint: tuple[str, State, SamplerState, int] | None = None
        self.sampler = Sampler(plan.samples, plan.seed)
        parameters = initial_parameters(plan.model, plan.seed)
        self.state = State(parameters, np.zeros_like(parameters))
        self._run()

    # ------------------------------------------------------------ telling

    def tell(self, source: str, fact: Fact, launch: int = 1) -> None:
        self.told.append(Told(source, launch, fact))

    def decide(self, what: str, fact: Fact, operations: dict[str, int] | None = None) -> None:
        """The coordinator makes a fact durable and tells it."""
        self.tell(COORDINATOR, Durable(what, operations or LOGGED), self.launch)
        self.tell(COORDINATOR, fact, self.launch)
        self.log.append(fact)

    # ------------------------------------------------------------ the run

    def _run(self) -> None:
        self.tell("driver", Expectation("clean", True, {}))
        sampler = json.dumps(self.sampler.state().to_json())
        started = RunStarted(
            self.config.to_json(), self.data.sha256, 0, sampler, *self.state.digests,
            self.state.parameters, self.state.velocity,
        )  # fmt: skip
        self.decide("start", started, STARTED)
        self._save(0, 0, 0)
        for worker in range(1, self.plan.workers + 1):
            self._join(worker, 0)
        self._regroup(0)
        step, rolled_back = 0, False
        while step < self.plan.steps:
            step += 1
            if step in self.plan.joins:
                self._join(self.plan.joins[step], step - 1)
                self._regroup(step - 1)
            self._step(step)
            if step in self.plan.coordinator_returns_after:
                self._coordinator_returns(step)
            if step == self.plan.rolls_back_after and not rolled_back:
                rolled_back = True
                step = self._roll_back(step)
        self.tell(COORDINATOR, Finished(self.plan.steps, "finished"), self.launch)

    def _join(self, worker: int, step: int) -> None:
        self.incarnations += 1
        incarnation = self.incarnations
        self.decide(f"admission {worker}.{incarnation}", Admitted(worker, incarnation, "n"))
        applied = StateApplied(worker, incarnation, self.generation, step, *self.state.digests, adopted=True)
        self.tell(f"worker-{worker}", applied)
        self.tell(COORDINATOR, Proven(worker, incarnation, step, self.generation, *self.state.digests), self.launch)
        self.members[worker] = incarnation

    def _regroup(self, step: int) -> None:
        self.generation += 1
        members = tuple(sorted(self.members.items()))
        self.decide(f"generation {self.generation}", Regrouped(self.generation, members, step, "joined"))

    def _lose(self, worker: int, step: int) -> None:
        incarnation = self.members.pop(worker)
        self.tell(COORDINATOR, Died(worker, incarnation, "link broken", step - 1), self.launch)
        self._regroup(step - 1)

    def _step(self, step: int) -> None:
        plan, generation = self.plan, self.generation
        dealt = plan.deal(step, self.sampler.deal(sorted(self.members), plan.batch))
        deals = {str(worker): ids for worker, ids in dealt.items()}
        opened = Opened(step, generation, self.sampler.epoch, deals, self.sampler.remaining_count)
        self.decide(f"open {step}", opened)
        held: dict[int, tuple[float, Array]] = {}
        for worker, ids in dealt.items():
            if ids:
                held[worker] = self._contribute(step, worker, ids)
        attempt = 0
        if step in plan.dies:
            self._close(step, attempt, held, dealt)
            self._lose(plan.dies[step], step)
            del held[plan.dies[step]]
            attempt += 1
        closed = self._close(step, attempt, held, dealt)
        self._commit(step, closed, held, dealt)
        if step % plan.checkpoint_every == 0 or step == plan.steps:
            writer = min(self.members)
            self._save(step, writer, self.members[writer])

    def _contribute(self, step: int, worker: int, ids: tuple[int, ...]) -> tuple[float, Array]:
        rows = list(ids)
        loss, gradient = loss_and_gradient(
            self.plan.model, self.state.parameters, self.data.train_features[rows], self.data.train_labels[rows]
        )
        gradient = self.plan.gradient(step, worker, gradient)
        if self.plan.spoils.get(step) == worker:
            gradient = gradient.copy()
            gradient[0] = np.nan
        fact = Contributed(
            worker, self.members[worker], self.generation, step, ids, array_digest(gradient), loss,
            gradient if self.plan.whole else None,
        )  # fmt: skip
        self.tell(f"worker-{worker}", fact)
        return loss, gradient

    def _close(
        self, step: int, attempt: int, held: dict[int, tuple[float, Array]], dealt: dict[int, tuple[int, ...]]
    ) -> Closed:
        contributors = tuple((worker, self.members[worker], len(dealt[worker])) for worker in sorted(held))
        total = sum(count for _, _, count in contributors)
        closed = Closed(step, self.generation, attempt, contributors, total)
        self.decide(f"close {step}.{attempt}", closed)
        return closed

    def _commit(
        self, step: int, closed: Closed, held: dict[int, tuple[float, Array]], dealt: dict[int, tuple[int, ...]]
    ) -> None:
        offenders = tuple(worker for worker in sorted(held) if not np.isfinite(held[worker][1]).all())
        order = tuple(sorted(held))
        if step in self.plan.skips:
            offenders = (self.plan.skips[step],)
        parts = [(worker, len(dealt[worker]), held[worker][1]) for worker in order]
        value = self.plan.reduced(step, parts)
        digest = "" if offenders else array_digest(value)
        ids = tuple(dealt[worker] for worker in order)
        loss = sum(held[worker][0] * len(dealt[worker]) for worker in order) / closed.total
        committed = Committed(
            step, self.generation, closed.attempt, self.sampler.epoch, closed.contributors, ids,
            tuple(array_digest(held[worker][1]) for worker in order), closed.total, digest, loss, bool(offenders),
            offenders,
        )  # fmt: skip
        word = "skip" if offenders else "commit"
        self.decide(f"{word} {step}.{closed.attempt}", committed)
        remaining = set(self.sampler.remaining())
        self.sampler.commit(remaining & {sample for part in ids for sample in part})
        if not offenders:
            first = order[0]
            reduced = Reduced(first, self.members[first], step, closed.attempt, self.generation, digest, order, value)
            self.tell(f"worker-{first}", reduced)
            applied = apply_sgd(self.config.optimizer, self.state.parameters, self.state.velocity, value)
            self.state = State(*applied)
        rows = []
        for worker, incarnation in sorted(self.members.items()):
            fact = StateApplied(worker, incarnation, self.generation, step, *self.state.digests)
            self.tell(f"worker-{worker}", fact)
            rows.append((worker, incarnation, *self.state.digests))
        self.tell(COORDINATOR, StepApplied(step, self.generation, tuple(rows)), self.launch)

    def _save(self, step: int, writer: int, incarnation: int) -> None:
        name = f"ckpt-{step:08d}-g{self.generation}-i{incarnation}"
        sampler = json.dumps(self.sampler.state().to_json())
        source, launch = (f"worker-{writer}", 1) if writer else (COORDINATOR, self.launch)
        self.tell(source, Durable(f"checkpoint {step} {name}", SAVED), launch)
        if writer:
            written = CheckpointWritten(writer, incarnation, step, name, *self.state.digests, sampler)
            self.tell(source, written)
        published = Published(step, name, writer, incarnation, *self.state.digests, sampler)
        self.decide(f"publish {step} {name}", published, PUBLISHED)
        self.checkpoint = (name, self.state, self.sampler.state(), step)

    def _roll_back(self, step: int) -> int:
        """Everybody dies; new incarnations start from the newest checkpoint."""
        assert self.checkpoint is not None
        workers = sorted(self.members)
        for worker in workers:
            self._lose(worker, step + 1)
        name, self.state, sampler, to_step = self.checkpoint
        self.sampler = Sampler.restore(sampler)
        fact = RolledBack(
            to_step, self.generation, name, *self.state.digests, json.dumps(sampler.to_json()), "nobody holds the state"
        )
        self.decide(f"rollback {to_step}", fact)
        for worker in workers:
            self._join(worker, to_step)
        self._regroup(to_step)
        return to_step

    def _coordinator_returns(self, step: int) -> None:
        self.launch += 1
        for fact in self.log:
            bare = fact
            if isinstance(fact, RunStarted):
                bare = dataclasses.replace(fact, parameters=None, velocity=None)  # the log keeps no arrays
            self.tell(COORDINATOR, bare, self.launch)
        recovered = Recovered(self.launch, step, self.generation, "")
        self.decide(f"recovery {self.launch}", recovered)
        self._regroup(step)

    # ------------------------------------------------------------ planting mistakes in what is told

    def places(self, kind: type, **fields: Any) -> list[int]:
        """Where facts of this kind and with these fields stand in `told`."""
        found = [
            place
            for place, told in enumerate(self.told)
            if isinstance(told.fact, kind) and all(getattr(told.fact, name) == value for name, value in fields.items())
        ]
        assert found, f"no {kind.__name__} with {fields}"
        return found

    def replace(self, kind: type, where: dict[str, Any], **changes: Any) -> HonestRun:
        """Tell the first such fact with other fields."""
        place = self.places(kind, **where)[0]
        told = self.told[place]
        self.told[place] = dataclasses.replace(told, fact=dataclasses.replace(told.fact, **changes))
        return self

    def drop(self, kind: type, **where: Any) -> HonestRun:
        del self.told[self.places(kind, **where)[0]]
        return self

    def insert_before(self, kind: type, where: dict[str, Any], source: str, fact: Fact) -> HonestRun:
        self.told.insert(self.places(kind, **where)[0], Told(source, 1, fact))
        return self

    # ------------------------------------------------------------ judging

    def numbered(self) -> Iterator[tuple[Told, int]]:
        numbers: Counter[tuple[str, int]] = Counter()
        for told in self.told:
            numbers[told.source, told.launch] += 1
            yield told, numbers[told.source, told.launch]

    def lines(self, seed: int | None = None, end: bool = True, step_ms: float = 1.0) -> list[HistoryLine]:
        """The history. With a seed, sources interleave at random, each in its own order."""
        records = list(self.numbered())
        if seed is not None:
            records = _interleaved(records, np.random.default_rng(seed))
        lines = []
        for seq, (told, number) in enumerate(records, start=1):
            record = fact_to_numbered(told.fact, number)
            line = HistoryLine(
                seq, seq * step_ms, told.source, told.launch, number, record.kind, record.body_json, dict(record.arrays)
            )
            lines.append(line)
        if end:
            lines.append(end_line(lines))
        return lines

    def judge(self, seed: int | None = None, **options: Any) -> dict[str, Any]:
        judge = Judge(self.dataset)
        for line in self.lines(seed, **options):
            judge.feed(line)
        return judge.finish()


def end_line(lines: list[HistoryLine], excused: dict[str, str] | None = None) -> HistoryLine:
    """The end record of these lines."""
    counts: dict[str, int] = {}
    for line in lines:
        counts[f"{line.source}/{line.launch}"] = line.number
    record = fact_to_numbered(Ended(len(lines), counts, excused or {}), 1)
    at_ms = lines[-1].at_ms if lines else 0.0
    return HistoryLine(len(lines) + 1, at_ms, "verifier", 1, 1, record.kind, record.body_json)


def encoded(lines: list[HistoryLine]) -> tuple[bytes, bytes]:
    """history.jsonl and history.arrays."""
    content, arrays = b"", b""
    for line in lines:
        text, chunk = encode_line(line, len(arrays))
        content += text
        arrays += chunk
    return content, arrays


def _interleaved(records: list[tuple[Told, int]], random: np.random.Generator) -> list[tuple[Told, int]]:
    queues: dict[str, list[tuple[Told, int]]] = {}
    for record in records:
        queues.setdefault(record[0].source, []).append(record)
    mixed = []
    while queues:
        source = sorted(queues)[int(random.integers(len(queues)))]
        mixed.append(queues[source].pop(0))
        if not queues[source]:
            del queues[source]
    return mixed


def verdicts(document: dict[str, Any]) -> dict[str, str]:
    return {invariant["name"]: invariant["verdict"] for invariant in document["invariants"]}


def not_passed(document: dict[str, Any]) -> dict[str, str]:
    return {name: verdict for name, verdict in verdicts(document).items() if verdict != "pass"}
