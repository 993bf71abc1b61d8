"""How a role becomes a process of this machine: its command line, its environment, and the factory on the other side.

What a role needs to know stands in files of the run folder, so that a relaunch reads the same; the run's token goes
through the environment, since command lines are seen by every user of the machine.
"""

from __future__ import annotations

import contextlib
import json
import os
import sys
from collections.abc import Iterable
from pathlib import Path

from services import any_config
from services.any_config import AnyRunConfig, read_run_config
from services.config import RunConfig
from services.events import COORDINATOR, VERIFIER
from services.host import Role
from services.shell.options import TOKEN_VARIABLE, ShellOptions
from testbed.engines.base import RunPlan
from testbed.run_folder import RunFolder
from training.checkpoint import newest_good
from training.errors import ConfigurationError
from training.real_disk import RealDisk

_FACTORY = "testbed.engines.local_cast:make_role"
CONFIG_FILE = "config.json"
_PLANTED = contextlib.ExitStack()  # bugs stay planted for as long as the process lives
SHELL = (sys.executable, "-P", "-m", "services.shell")
_ROOT = Path(__file__).resolve().parents[2]


def first_cast(plan: RunPlan) -> tuple[str, ...]:
    """The roles that a run starts with, in the order in which they are started."""
    cast = any_config.first_cast(plan.config.strategy, plan.config.workers)
    return cast if plan.verifier else tuple(role for role in cast if role != VERIFIER)


def whole_cast(plan: RunPlan) -> tuple[str, ...]:
    """Every role that may live in this run, those that a fault adds included."""
    from chaos.fault_kinds.roles import AddWorker  # here: a role needs none of it, and starts a fifth sooner

    added = (fault.target for fault in plan.scenario.faults if isinstance(fault, AddWorker))
    return tuple(dict.fromkeys((*first_cast(plan), *added)))


def write_settings(plan: RunPlan, folder: RunFolder, seen_at: Path | None = None) -> str:
    """Put what the factory reads into the run folder; returns the settings that go on each command line.

    `seen_at` is where the roles find the run folder, when it is not where we do.
    """
    (folder.path / CONFIG_FILE).write_text(plan.config.to_json(), encoding="utf-8")
    resume = "" if plan.resume is None else plan.resume.run_id
    return settings_in(RunFolder(seen_at or folder.path), resume, plan.plants)


def settings_in(seen: RunFolder, resume_run_id: str, plants: Iterable[str]) -> str:
    """The settings of a role that finds the run folder there; `resume_run_id` is empty for a run that starts afresh."""
    settings = {
        "config": str(seen.path / CONFIG_FILE),
        "dataset": str(seen.dataset_path),
        "resume": {"folder": str(seen.resumed_from), "run_id": resume_run_id} if resume_run_id else None,
        "plants": list(plants),
    }
    return json.dumps(settings, sort_keys=True)


def command(role: str, launch: int, plan: RunPlan, folder: RunFolder, driver: str, settings: str) -> list[str]:
    """The command line of one launch. -P: a folder of the user's that is called services must not get in between."""
    return [*SHELL, *arguments(role, launch, plan, folder.path, driver, settings)]


def arguments(role: str, launch: int, plan: RunPlan, folder: Path, driver: str, settings: str) -> list[str]:
    """What the shell of one launch is told; `folder` as the role sees it."""
    return shell_arguments(role, launch, plan.config.run_id, folder, driver, settings, evidence=plan.verifier)


def shell_arguments(
    role: str, launch: int, run_id: str, folder: Path, driver: str, settings: str, *, evidence: bool
) -> list[str]:
    """The same, of a run that is known by its id alone."""
    return [
        role,
        f"--launch={launch}",
        f"--run-id={run_id}",
        f"--folder={folder}",
        f"--driver={driver}",
        f"--factory={_FACTORY}",
        f"--settings={settings}",
        *(() if evidence else ("--no-evidence",)),
    ]


def environment(token: str) -> dict[str, str]:
    """The environment of every role of the run that has this token."""
    path = os.pathsep.join([str(_ROOT), *filter(None, [os.environ.get("PYTHONPATH", "")])])
    return {**os.environ, TOKEN_VARIABLE: token, "PYTHONPATH": path}


def make_role(options: ShellOptions) -> Role:
    """Factory of the role processes. Raises ConfigurationError when the settings do not make that role."""
    try:
        settings = json.loads(options.settings_json)
        config = read_run_config(Path(settings["config"]).read_text(encoding="utf-8"))
        dataset = Path(settings["dataset"]).read_bytes() if options.role in (COORDINATOR, VERIFIER) else b""
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise ConfigurationError(f"{options.role} cannot read its settings: {error}") from error
    if settings["plants"]:
        from testbed.plants import planted

        _PLANTED.enter_context(planted(settings["plants"]))
    if options.role == COORDINATOR:
        return _coordinator(options, config, dataset, settings["resume"])
    if options.role == VERIFIER:
        from services.roles.verifier import Verifier

        return Verifier(options.launch, dataset, config.to_json())
    from services.shell.cast import make_role as make_member

    return make_member(options)


def _coordinator(options: ShellOptions, config: AnyRunConfig, dataset: bytes, resume: dict[str, str] | None) -> Role:
    from services.roles.coordinator import ResumePoint
    from services.shell.cast import coordinator_of

    if resume is None:
        return coordinator_of(config, options.launch, dataset)
    assert isinstance(config, RunConfig), "a layer-sharded run does not resume another"
    name, found, _ = newest_good(RealDisk(), resume["folder"], config.model, config.dataset_sha256)
    return coordinator_of(config, options.launch, dataset, ResumePoint(found, name, resume["run_id"]))
