"""The roles of data-parallel training, made from what a launch is told: the default factory of the shell.

Settings, all for the coordinator alone: {"config": path of a `RunConfig` as JSON, "dataset": path of the dataset's
bytes}. Members and the server learn everything from the coordinator. A coordinator that resumes another run needs its
state in memory, so an engine that offers it brings a factory of its own.
"""

from __future__ import annotations

import json
from pathlib import Path

from services.config import RunConfig
from services.events import COORDINATOR, SERVER, worker_id
from services.host import Role
from services.roles.coordinator import Coordinator
from services.roles.server import Server
from services.roles.worker import Worker
from services.shell.options import ShellOptions
from training.errors import ConfigurationError


def make_role(options: ShellOptions) -> Role:
    """The role that `options.role` names. Raises ConfigurationError for one that cannot be made from these settings."""
    if options.role == COORDINATOR:
        return _coordinator(options)
    if options.role == SERVER:
        return Server(options.launch)
    try:
        return Worker(worker_id(options.role), options.launch)
    except ValueError as error:
        raise ConfigurationError(str(error)) from error


def _coordinator(options: ShellOptions) -> Coordinator:
    try:
        settings = json.loads(options.settings_json)
        config = RunConfig.from_json(Path(settings["config"]).read_text(encoding="utf-8"))
        dataset = Path(settings["dataset"]).read_bytes()
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"a coordinator needs settings with config and dataset: {error}") from error
    return Coordinator(config, options.launch, dataset)
