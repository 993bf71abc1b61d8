"""From what a person asked for to a `RunPlan`: everything is read, checked and refused here, before anything starts.

Nothing in this module creates a file, a folder or a process. Every refusal is a GradstormError of one clear line for
each thing that is wrong.
"""

from __future__ import annotations

import hashlib
import json
import secrets
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, get_args

from chaos.scenario import DatasetFacts, Overrides, Scenario, checked, override, to_run_config
from chaos.training_setup import DatasetSetup, ModelSetup
from services.config import RunConfig, Strategy
from testbed.catalog import find_scenario
from testbed.engines import engine_named
from testbed.engines.base import Engine, ResumeFrom, RunPlan
from testbed.run_folder import RunFolder, find_run, folder_for, new_run_id
from training.checkpoint import newest_good
from training.datasets import Dataset, dataset_from_bytes, load_dataset
from training.errors import ConfigurationError
from training.real_disk import RealDisk

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
    data: str | None = None  # "blobs", "digits", or a .csv or .npz file
    model: str | None = None  # "softmax", "mlp" or "mlp:<hidden units>"
    steps: int | None = None
    batch: int | None = None
    lr: float | None = None
    resume: str | None = None  # an earlier run: id, folder or "latest"
    plants: tuple[str, ...] = ()
    out: Path | None = None


@dataclass(frozen=True, slots=True)
class Prepared:
    """A run that can start: the plan, the engine, and where its folder will be."""

    plan: RunPlan
    engine: Engine
    folder_path: Path


def prepare(request: RunRequest) -> Prepared:
    """Check everything that can be checked beforehand. Raises GradstormError; changes nothing."""
    engine = engine_named(request.engine)
    scenario = _scenario(request)
    strategy = _strategy(request.strategy, scenario)
    _require_able(engine, scenario, strategy)
    if request.out is not None:
        folder_for("", request.out)  # refuses a folder that exists before the data is read
    dataset = load_dataset(scenario.training.dataset.spec())
    config = to_run_config(scenario, strategy, DatasetFacts.of(dataset))
    resume = _resume(request.resume, config) if request.resume else None
    identity = _digest(config, scenario, request.plants, resume)
    run_id = new_run_id(engine.name, scenario.name, strategy, config.seed, identity)
    plan = RunPlan(
        config=replace(config, run_id=run_id),
        scenario=scenario,
        dataset=dataset,
        token=secrets.token_urlsafe(_TOKEN_BYTES),
        resume=resume,
        plants=_plants(request.plants),
    )
    return Prepared(plan, engine, folder_for(run_id, request.out))


def prepare_replay(folder: RunFolder, out: Path | None) -> Prepared:
    """The same run again in the simulator: configuration, data, schedule and plants as its manifest has them."""
    manifest = folder.manifest()
    try:
        config = RunConfig.from_json(json.dumps(manifest["config"]))
        scenario = checked(Scenario.model_validate(manifest["scenario_document"]), str(folder.manifest_path))
        plants = tuple(manifest["plants"])
        resume = manifest["resume"]
    except (KeyError, TypeError, ValueError) as error:
        raise ConfigurationError(f"{folder.manifest_path} is of another version: {error}") from error
    engine = engine_named("sim")
    _require_able(engine, scenario, config.strategy)
    dataset = dataset_from_bytes(folder.dataset_path.read_bytes(), config.dataset_sha256)
    plan = RunPlan(
        config=config,
        scenario=scenario,
        dataset=dataset,
        token=secrets.token_urlsafe(_TOKEN_BYTES),
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
        dataset=_dataset_setup(request.data, scenario) if request.data is not None else None,
        model=_model_setup(request.model) if request.model is not None else None,
    )
    return override(scenario, overrides)


def _dataset_setup(text: str, scenario: Scenario) -> DatasetSetup:
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


def _strategy(asked: str | None, scenario: Scenario) -> Strategy:
    known: tuple[Strategy, ...] = get_args(Strategy)
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


def _resume(name: str, config: RunConfig) -> ResumeFrom:
    folder = find_run(name)
    run_id = str(folder.manifest().get("run_id", folder.path.name))
    return _read_resume(folder.checkpoints, run_id, config)


def _read_resume(checkpoints: Path, run_id: str, config: RunConfig) -> ResumeFrom:
    name, found, damages = newest_good(RealDisk(), str(checkpoints), config.model, config.dataset_sha256)
    if found.step >= config.steps:
        raise ConfigurationError(
            f"run {run_id} stands at step {found.step} already; give --steps more than that to go on from it"
        )
    return ResumeFrom(found, name, run_id, str(checkpoints / name), damages)


def _digest(config: RunConfig, scenario: Scenario, plants: tuple[str, ...], resume: ResumeFrom | None) -> str:
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
    return dataset_from_bytes(folder.dataset_path.read_bytes(), str(config["dataset_sha256"]))
