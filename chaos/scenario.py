"""A scenario: what is trained, what goes wrong, and what it promises. One YAML file, checked before anything starts.

    scenario = parse_scenario(text, "mine.yaml")           # ScenarioError: file, line, key and the nearest known name
    scenario = override(scenario, Overrides(workers=3))    # ScenarioError when a fault no longer fits
    refusals(scenario, "local", "ring")                    # why that engine cannot run it; empty when it can
    config = to_run_config(scenario, "ring", facts)        # what the roles are told

A `Scenario` put together in code is well-typed but perhaps no sense: pass it through `checked`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Annotated, Any, Literal

import yaml
from pydantic import Discriminator, Field, Tag, ValidationError, model_validator

from chaos.checks import CHECKPOINTS_KEPT, problems
from chaos.expect import Expect
from chaos.expect import promises as promises_of
from chaos.explain import explain, without_echoes
from chaos.fault_kinds.base import Milliseconds, Strict
from chaos.faults import Fault, cannot, fault_names
from chaos.membership import expected_joins
from chaos.problem import Problem
from chaos.shard_setup import ShardTrainingSetup, TokensSetup
from chaos.sound_parts import sense_beside
from chaos.training_setup import DatasetSetup, ModelSetup, TrainingSetup
from chaos.yaml_text import MarkedYaml, YamlError, load_marked
from services.any_config import SHARDS, AnyStrategy
from services.config import RunConfig, Strategy
from services.shard_config import ShardRunConfig
from training.dataset import Dataset
from training.errors import ConfigurationError
from training.tokens import Corpus, require_context

EngineName = Literal["sim", "local", "containers", "lan"]


class ScenarioError(ConfigurationError):
    """A scenario that cannot be used. `complaints` has one line for each thing that is wrong with it."""

    def __init__(self, complaints: Sequence[str]) -> None:
        super().__init__("\n".join(complaints))
        self.complaints = tuple(complaints)


def _usual_engines() -> list[EngineName]:
    return ["sim", "local", "containers"]


def _both_strategies() -> list[AnyStrategy]:
    return ["ring", "ps"]


def _training_kind(value: object) -> str:
    kind = value.get("kind") if isinstance(value, dict) else getattr(value, "kind", None)
    return "(shards)" if kind is not None else "(data-parallel)"


AnyTraining = Annotated[
    Annotated[TrainingSetup, Tag("(data-parallel)")] | Annotated[ShardTrainingSetup, Tag("(shards)")],
    Discriminator(_training_kind),
]


class Scenario(Strict):
    """Training setup, schedule and promises."""

    name: Annotated[str, Field(pattern=r"^[a-z0-9][a-z0-9-]*$", max_length=64)]
    """Short, in lower case, with hyphens."""
    title: str
    """One line."""
    description: str = ""
    """What happens and what it shows."""
    engines: list[EngineName] = Field(min_length=1, default_factory=_usual_engines)
    """Engines that it is meant for."""
    strategies: list[AnyStrategy] = Field(min_length=1, default_factory=_both_strategies)
    """Strategies that it is meant for; left out, [shards] for training of kind shards."""
    fixed: bool = True
    """The same schedule gives the same parameters, bitwise, on every engine; false when a clock triggers a fault."""
    training: AnyTraining = TrainingSetup()
    """Data-parallel, or layer-sharded (`kind: shards`)."""
    faults: list[Fault] = Field(default_factory=list)
    """What goes wrong; faults at the same point act in this order, a death last."""
    expect: Expect = Expect()
    clean_steps: Annotated[int, Field(ge=1)] = 3
    """Undisturbed steps that must follow after the last fault is undone."""
    liveness_bound_ms: Milliseconds = 20_000.0
    """Once the faults are undone, a step must commit within this time of the role clock."""

    @model_validator(mode="before")
    @classmethod
    def _shards_have_one_strategy(cls, data: Any) -> Any:
        sharded = isinstance(data, dict) and _training_kind(data.get("training")) == "(shards)"
        return {**data, "strategies": [SHARDS]} if sharded and "strategies" not in data else data

    @property
    def sharded(self) -> bool:
        """Whether it trains layer-sharded."""
        return isinstance(self.training, ShardTrainingSetup)

    @property
    def fault_names(self) -> tuple[str, ...]:
        """A name for each fault, unique within the run."""
        return fault_names(self.faults)

    @property
    def promises(self) -> dict[str, str | int | float]:
        """Everything that the verifier is told to expect."""
        return promises_of(self.expect, self.faults, self.training.workers, sharded=self.sharded)


# ---------------------------------------------------------------- reading and writing


def parse_scenario(text: str, source: str) -> Scenario:
    """Read a scenario from YAML. Raises ScenarioError with every complaint as "source:line: key: what"."""
    try:
        marked = load_marked(text)
    except YamlError as error:
        raise ScenarioError([f"{source}:{error.line}:{error.column}: {error.text}"]) from error
    if not isinstance(marked.data, dict):
        raise ScenarioError([f"{source}:1: a scenario has keys and values (name, title, training, faults, …)"])
    try:
        scenario = Scenario.model_validate(marked.data)
    except ValidationError as error:
        found = [explain(item, Scenario, marked.data) for item in error.errors(include_url=False)]
        beside = sense_beside([problem.path for problem in found], marked.data, Scenario)
        raise ScenarioError(_located(without_echoes(found) + beside, marked, source)) from error
    found = problems(scenario)
    if found:
        raise ScenarioError(_located(found, marked, source))
    return scenario


def checked(scenario: Scenario, source: str) -> Scenario:
    """The same scenario, if it makes sense. Raises ScenarioError that names `source` otherwise."""
    found = problems(scenario)
    if found:
        raise ScenarioError([f"{source}: {problem}" for problem in found])
    return scenario


def scenario_yaml(scenario: Scenario) -> str:
    """The scenario as YAML that `parse_scenario` reads back to an equal one; what is as by default is left out."""
    plain = scenario.model_dump(mode="json", exclude_defaults=True)
    text: str = yaml.safe_dump(plain, sort_keys=False, allow_unicode=True, width=110)
    return text


def _located(found: Sequence[Problem], marked: MarkedYaml, source: str) -> list[str]:
    placed = sorted((marked.line_of(problem.path), number, problem) for number, problem in enumerate(found))
    return [f"{source}:{line}: {problem}" for line, _, problem in placed]


# ---------------------------------------------------------------- engines


def refusals(scenario: Scenario, engine: str, strategy: str, *, toxiproxy: bool = False) -> list[str]:
    """Why `engine` cannot run the scenario under `strategy`, each by name; empty when it can."""
    found = []
    as_local = engine == "lan" and "local" in scenario.engines  # processes like those, on other machines
    if engine not in scenario.engines and not as_local:
        found.append(f"scenario {scenario.name} is for engine {' or '.join(scenario.engines)}, not {engine}")
    if strategy not in scenario.strategies:
        found.append(f"scenario {scenario.name} is for strategy {' or '.join(scenario.strategies)}, not {strategy}")
    training = scenario.training
    if engine == "lan" and isinstance(training, ShardTrainingSetup) and training.staleness.age == "measured":
        found.append("ages are measured, which takes one clock: engine lan has several machines")
    for name, fault in zip(scenario.fault_names, scenario.faults, strict=True):
        reason = cannot(fault, engine, toxiproxy=toxiproxy)
        if reason:
            found.append(f"fault {name}: {reason}")
    return found


# ---------------------------------------------------------------- from the command line to the roles


@dataclass(frozen=True, slots=True)
class Overrides:
    """What the command line changes in a scenario. None leaves it as it is."""

    workers: int | None = None
    steps: int | None = None
    seed: int | None = None
    batch_size: int | None = None
    learning_rate: float | None = None
    dataset: DatasetSetup | None = None
    model: ModelSetup | None = None
    tokens: TokensSetup | None = None


def override(scenario: Scenario, overrides: Overrides) -> Scenario:
    """The scenario with these changes. Raises ScenarioError when they are out of range or a fault no longer fits.

    A promised accuracy is a promise about the scenario's own training, so it goes when that is changed.
    """
    given = {item.name: getattr(overrides, item.name) for item in fields(overrides)}
    given = {name: value for name, value in given.items() if value is not None}
    if not given:
        return scenario
    kind: type[ShardTrainingSetup | TrainingSetup] = type(scenario.training)
    source = f"scenario {scenario.name} with {', '.join(sorted(given))} changed"
    foreign = sorted(set(given) & ({"dataset", "model"} if scenario.sharded else {"tokens"}))
    if foreign:
        other = "layer-sharded" if scenario.sharded else "data-parallel"
        raise ScenarioError([f"{source}: {other} training has no {' or '.join(foreign)} of that form"])
    training = scenario.training.model_dump()
    (_change_shards if scenario.sharded else _change_workers)(training, given)
    try:
        setup = kind.model_validate(training)
    except ValidationError as error:
        found = [explain(item, kind, training) for item in error.errors(include_url=False)]
        raise ScenarioError([f"{source}: {problem}" for problem in found]) from error
    expect = scenario.expect
    if set(given) - {"seed"}:
        expect = expect.model_copy(update={"min_accuracy": None})
    return checked(scenario.model_copy(update={"training": setup, "expect": expect}), source)


def _change_workers(training: dict[str, Any], given: dict[str, Any]) -> None:
    for name in ("workers", "steps", "seed"):
        training[name] = given.get(name, training[name])
    training["batch"]["size"] = given.get("batch_size", training["batch"]["size"])
    training["optimizer"]["learning_rate"] = given.get("learning_rate", training["optimizer"]["learning_rate"])
    for name in ("dataset", "model"):
        training[name] = given[name].model_dump() if name in given else training[name]


def _change_shards(training: dict[str, Any], given: dict[str, Any]) -> None:
    for name in ("steps", "seed"):
        training[name] = given.get(name, training[name])
    training["batch"] = given.get("batch_size", training["batch"])
    training["optimizer"]["learning_rate"] = given.get("learning_rate", training["optimizer"]["learning_rate"])
    if "workers" in given:
        training["shards"], training["cuts"] = given["workers"], None
    if "tokens" in given:
        training["tokens"] = given["tokens"].model_dump()


@dataclass(frozen=True, slots=True)
class DatasetFacts:
    """What a run's configuration says about its training data."""

    name: str
    sha256: str
    sample_count: int
    feature_count: int
    class_count: int

    @classmethod
    def of(cls, dataset: Dataset) -> DatasetFacts:
        """Of a loaded dataset."""
        count = len(dataset.train_labels)
        return cls(dataset.name, dataset.sha256, count, dataset.feature_count, dataset.class_count)


def to_run_config(scenario: Scenario, strategy: Strategy, facts: DatasetFacts, *, run_id: str = "") -> RunConfig:
    """What the roles are told. Without a `run_id` it follows from name, strategy and seed."""
    training = scenario.training
    assert isinstance(training, TrainingSetup), "layer-sharded training has a configuration of its own"
    return RunConfig(
        run_id=run_id or f"{scenario.name}-{strategy}-{training.seed}",
        seed=training.seed,
        strategy=strategy,
        workers=training.workers,
        steps=training.steps,
        model=training.model.config(facts.feature_count, facts.class_count),
        optimizer=training.optimizer.config(),
        batch=training.batch.config(),
        dataset_name=facts.name,
        dataset_sha256=facts.sha256,
        sample_count=facts.sample_count,
        chunk_elements=training.chunk_elements,
        checkpoint_every=training.checkpoint_every,
        checkpoint_keep=CHECKPOINTS_KEPT,
        expected_joins=expected_joins(scenario.faults, training.workers),
        timing=training.timing.timing(),
    )


def to_shard_config(scenario: Scenario, corpus: Corpus, *, run_id: str = "") -> ShardRunConfig:
    """What the roles of a layer-sharded run are told. Raises DataError for a corpus shorter than a context."""
    training = scenario.training
    assert isinstance(training, ShardTrainingSetup), "data-parallel training has a configuration of its own"
    require_context(corpus, training.model.context)
    run_id = run_id or f"{scenario.name}-{SHARDS}-{training.seed}"
    return training.config(run_id, corpus.name, corpus.sha256, corpus.vocabulary_size)
