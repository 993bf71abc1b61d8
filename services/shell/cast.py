"""The roles, made from what a launch is told: the default factory of the shell.

Settings, all for the coordinator alone: {"config": path of a `RunConfig` or `ShardRunConfig` as JSON, "dataset": path
of the dataset's (or tokens') bytes}. Members and the server learn everything from the coordinator. A coordinator that
resumes another run needs its state in memory, so an engine that offers it brings a factory of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

from services.any_config import AnyRunConfig, read_run_config
from services.events import COORDINATOR, SERVER, shard_id, worker_id
from services.host import Role
from services.roles.coordinator import Coordinator, ResumePoint
from services.roles.server import Server
from services.roles.shard import Shard
from services.roles.shard_coordinator import ShardCoordinator
from services.roles.worker import Worker
from services.shard_config import ShardRunConfig
from services.shell.options import ShellOptions
from training.errors import ConfigurationError


def make_role(options: ShellOptions) -> Role:
    """The role that `options.role` names. Raises ConfigurationError for one that cannot be made from these settings."""
    if options.role == COORDINATOR:
        return _coordinator(options)
    try:
        return make_member(options.role, options.launch)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def make_member(role: str, launch: int) -> Role:
    """A server, worker or shard. Raises ValueError for another name."""
    if role == SERVER:
        return Server(launch)
    return Shard(shard_id(role), launch) if role.startswith("shard-") else Worker(worker_id(role), launch)


def coordinator_of(config: AnyRunConfig, launch: int, data: bytes, point: ResumePoint | None = None) -> Role:
    """The coordinator of that kind of training; a layer-sharded run starts afresh."""
    if isinstance(config, ShardRunConfig):
        assert point is None, "a layer-sharded run does not resume another"
        return ShardCoordinator(config, launch, data)
    return Coordinator(config, launch, data, point)


def _coordinator(options: ShellOptions) -> Role:
    try:
        settings = json.loads(options.settings_json)
        config = read_run_config(Path(settings["config"]).read_text(encoding="utf-8"))
        dataset = Path(settings["dataset"]).read_bytes()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"a coordinator needs settings with config and dataset: {error}") from error
    return coordinator_of(config, options.launch, dataset)
