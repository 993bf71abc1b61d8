"""From what a person asked for to a `RunPlan`: everything is read, checked and refused here, before anything starts.

Nothing in this module creates a file, a folder or a process. Every refusal is a GradstormError of one clear line for
each thing that is wrong.
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from chaos.scenario import DatasetFacts, Overrides, Scenario, checked, override, to_run_config, to_shard_config
from chaos.shard_setup import ShardTrainingSetup, TokensSetup
from chaos.training_setup import DatasetSetup, ModelSetup, TrainingSetup
from services.any_config import AnyRunConfig, AnyStrategy, read_run_config
from services.config import RunConfig
from testbed.catalog import find_scenario
from testbed.engines import engine_named
from testbed.engines.base import Engine, ResumeFrom, RunPlan
from testbed.engines.local_cast import whole_cast
from testbed.lan.settings import LanSettings
from testbed.places import read_file, require_end
from testbed.run_folder import RunFolder, find_run, folder_for, new_run_id
from training.checkpoint import newest_good
from training.corpora import load_corpus
from training.corpus_bytes import corpus_from_bytes, corpus_to_bytes
from training.datasets import Dataset, dataset_from_bytes, dataset_to_bytes, load_dataset
from training.errors import ConfigurationError
from training.real_disk import RealDisk
from training.tokens import Corpus

_HIDDEN_DEFAULT = 16
_TOKEN_BYTES = 24


@dataclass(frozen=True, slots=True)
class RunRequest:
    """What a person asked for. None: as the scenario has it."""

    scenario: str | Scenario
    engine: str = "sim"
    strategy: str | None = None
    workers: int | None = None
    seed: int | None = None
    data: str | None = None  # "blobs", "digits", or a .csv or .npz file; of shards: "sample" or "synthetic"
    text: str | None = None  # of shards: a text file
    model: str | None = None  # "softmax", "mlp" or "mlp:<hidden units>"
    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    resume: str | None = None  # an earlier run: id, folder or "latest"
    plants: tuple[str, ...] = ()
    out: Path | None = None
    lan: LanSettings | None = None  # of engine lan: where its hosts are


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can start: the plan, the engine, and where its folder will be."""

    plan: RunPlan
    engine: Engine
    folder_path: Path


def prepare(request: RunRequest) -> Prepared:
    """Check everything that can be checked beforehand. Raises GradstormError; changes nothing."""
    engine = _engine(request)
    scenario = _scenario(request)
    strategy = _strategy(request.strategy, scenario)
    _require_able(engine, scenario, strategy)
    if request.out is not None:
        folder_for("", request.out)  # refuses a folder that exists before the data is read
    config, data = _configured(scenario, strategy)
    resume = _resume(request.resume, config) if request.resume else None
    identity = _digest(config, scenario, request.plants, resume)
    given_id, token = (request.lan.run_id, request.lan.token) if request.lan is not None else ("", "")
    run_id = given_id or new_run_id(engine.name, scenario.name, strategy, config.seed, identity)
    plan = RunPlan(
        config=replace(config, run_id=run_id),
        scenario=scenario,
        data=data,
        token=token or new_token(),
        resume=resume,
        plants=_plants(request.plants),
    )
    if request.lan is not None:
        request.lan.require(whole_cast(plan))
    return Prepared(plan, engine, folder_for(run_id, request.out))


def new_token() -> str:
    """A run's secret."""
    return secrets.token_urlsafe(_TOKEN_BYTES)


def _engine(request: RunRequest) -> Engine:
    if (request.engine == "lan") != (request.lan is not None):
        raise ConfigurationError("engine lan attaches to what it is told: --engine lan and --attach go together")
    if request.lan is not None:
        from testbed.engines.lan import LanEngine

        return LanEngine(request.lan)
    return engine_named(request.engine)


def prepare_replay(folder: RunFolder, out: Path | None) -> Prepared:
    """The same run again in the simulator: configuration, data, schedule and plants as its manifest has them."""
    manifest = folder.manifest()
    try:
        config = read_run_config(json.dumps(manifest["config"]))
        scenario = checked(Scenario.model_validate(manifest["scenario_document"]), str(folder.manifest_path))
        plants = tuple(manifest["plants"])
        resume = manifest["resume"]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{folder.manifest_path} is of another version: {error}") from error
    engine = engine_named("sim")
    _require_able(engine, scenario, config.strategy)
    data = folder.dataset()
    _require_data(data, config)
    plan = RunPlan(
        config=config,
        scenario=scenario,
        data=data,
        token=new_token(),
        resume=_read_resume(folder.resumed_from, str(resume["run_id"]), config) if resume else None,
        plants=_plants(plants),
    )
    return Prepared(plan, engine, folder_for(config.run_id, out))


def _scenario(request: RunRequest) -> Scenario:
    scenario = find_scenario(request.scenario) if isinstance(request.scenario, str) else request.scenario
    overrides = Overrides(
        workers=request.workers,
        steps=request.steps,
        seed=request.seed,
        batch_size=request.batch,
        learning_rate=request.lr,
        dataset=_dataset_setup(request.data, scenario) if request.data is not None and not scenario.sharded else None,
        model=_model_setup(request.model) if request.model is not None else None,
        tokens=_tokens_setup(request, scenario),
    )
    return override(scenario, overrides)


def _tokens_setup(request: RunRequest, scenario: Scenario) -> TokensSetup | None:
    """--text FILE, or --data sample or synthetic of a layer-sharded scenario."""
    training = scenario.training
    if request.text is not None:
        if request.data is not None:
            raise ConfigurationError("--text and --data both say what is trained on; give one of them")
        if not isinstance(training, ShardTrainingSetup):
            raise ConfigurationError(
                f"--text is for layer-sharded scenarios; {scenario.name} is data-parallel: see --data"
            )
        return training.tokens.model_copy(update={"kind": "text", "path": request.text})
    if request.data is None or not isinstance(training, ShardTrainingSetup):
        return None
    if request.data not in ("sample", "synthetic"):
        raise ConfigurationError(
            f"--data {request.data!r} is neither sample nor synthetic; a text file goes with --text"
        )
    return training.tokens.model_copy(update={"kind": request.data, "path": ""})


def _dataset_setup(text: str, scenario: Scenario) -> DatasetSetup:
    assert isinstance(scenario.training, TrainingSetup)
    kept = scenario.training.dataset
    if text in ("blobs", "digits"):
        shaped = kept if kept.kind == text else DatasetSetup()
        return shaped.model_copy(update={"kind": text, "path": "", "seed": kept.seed})
    if not text.endswith((".csv", ".npz")):
        raise ConfigurationError(f"--data {text!r} is neither blobs nor digits nor a .csv or .npz file")
    return DatasetSetup(kind="file", path=text, seed=kept.seed)


def _model_setup(text: str) -> ModelSetup:
    kind, _, hidden = text.partition(":")
    if kind == "softmax" and not hidden:
        return ModelSetup()
    if kind == "mlp" and (not hidden or (hidden.isascii() and hidden.isdigit() and int(hidden) > 0)):
        return ModelSetup(kind="mlp", hidden_count=int(hidden or _HIDDEN_DEFAULT))
    raise ConfigurationError(f"--model {text!r} is none of softmax, mlp, mlp:<hidden units>")


def _strategy(asked: str | None, scenario: Scenario) -> AnyStrategy:
    known: tuple[AnyStrategy, ...] = get_args(AnyStrategy)
    for strategy in known:
        if strategy == (asked or scenario.strategies[0]):
            return strategy
    raise ConfigurationError(f"no strategy {asked!r}; choose one of: {', '.join(known)}")


def _require_able(engine: Engine, scenario: Scenario, strategy: str) -> None:
    found = engine.refusals(scenario, strategy)
    if found:
        raise ConfigurationError("\n".join(found))


def _plants(names: tuple[str, ...]) -> tuple[str, ...]:
    """The names, once each of them is known. Raises ConfigurationError with the nearest name."""
    if names:
        from testbed.plants import planted

        with planted(names):
            pass
    return names


def _configured(scenario: Scenario, strategy: AnyStrategy) -> tuple[AnyRunConfig, bytes]:
    """What the roles are told, and what they train on. Raises GradstormError for data that cannot be."""
    if strategy == "shards":
        corpus = corpus_of(scenario)
        return to_shard_config(scenario, corpus), corpus_to_bytes(corpus)
    assert isinstance(scenario.training, TrainingSetup)
    spec = scenario.training.dataset.spec()
    if spec.path:
        with contextlib.suppress(OSError, ValueError):  # which the reader tells of
            require_end(Path(spec.path))
    dataset = load_dataset(spec)
    return to_run_config(scenario, strategy, DatasetFacts.of(dataset)), dataset_to_bytes(dataset)


def corpus_of(scenario: Scenario) -> Corpus:
    """The tokens of a layer-sharded scenario. Raises GradstormError."""
    assert isinstance(scenario.training, ShardTrainingSetup)
    tokens = scenario.training.tokens
    if tokens.kind != "text":
        return load_corpus(tokens.spec())
    path = Path(tokens.path)
    return load_corpus(tokens.spec(), path.name, read_file(path, "the text"))


def _require_data(data: bytes, config: AnyRunConfig) -> None:
    """Raise DataError unless these are the run's."""
    if isinstance(config, RunConfig):
        dataset_from_bytes(data, config.dataset_sha256)
    else:
        corpus_from_bytes(data, config.dataset_sha256)


def _resume(name: str, config: AnyRunConfig) -> ResumeFrom:
    folder = find_run(name)
    run_id = str(folder.manifest().get("run_id", folder.path.name))
    return _read_resume(folder.checkpoints, run_id, config)


def _read_resume(checkpoints: Path, run_id: str, config: AnyRunConfig) -> ResumeFrom:
    if not isinstance(config, RunConfig):
        raise ConfigurationError(
            "a layer-sharded run does not go on from another one; --resume is for data-parallel runs"
        )
    name, found, damages = newest_good(RealDisk(), str(checkpoints), config.model, config.dataset_sha256)
    if found.step >= config.steps:
        raise ConfigurationError(
            f"run {run_id} stands at step {found.step} already; give --steps more than that to go on from it"
        )
    return ResumeFrom(found, name, run_id, str(checkpoints / name), damages)


def _digest(config: AnyRunConfig, scenario: Scenario, plants: tuple[str, ...], resume: ResumeFrom | None) -> str:
    """What a simulated run's id follows from, beside its name: everything that its history can depend on."""
    parts: dict[str, Any] = {
        "config": json.loads(config.to_json()),
        "scenario": scenario.model_dump(mode="json"),
        "plants": list(plants),
        "resume": [resume.run_id, resume.name] if resume else [],
    }
    parts["config"].pop("run_id")
    return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def dataset_of(folder: RunFolder) -> Dataset:
    """What a run trained on. Raises DataError or RunFolderError."""
    config = folder.manifest()["config"]
    return dataset_from_bytes(folder.dataset(), str(config["dataset_sha256"]))
