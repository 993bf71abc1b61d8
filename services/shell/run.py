"""`run_role`: a role's whole life in this process, from options to exit code."""

from __future__ import annotations

import importlib
from typing import Any

from services.host import Role
from services.shell.logs import role_log
from services.shell.loop import run
from services.shell.options import ShellOptions
from services.shell.runner import RoleExit, Runner
from training.errors import ConfigurationError
from training.numerics import fingerprint


def run_role(options: ShellOptions) -> int:
    """Run the role until it is over and return the process's exit code. Raises ConfigurationError before it starts.

    BLAS threads must have been set before numpy was loaded (`services.shell.__main__` does).
    """
    position: dict[str, int] = {}
    log = role_log(options, position)
    role = _factory(options.factory)(options)
    return int(run(_run(options, role, log, position)))


async def _run(options: ShellOptions, role: Role, log: Any, position: dict[str, int]) -> RoleExit:
    return await Runner(options, role, fingerprint(), log, position).run()


def _factory(name: str) -> Any:
    module, _, function = name.partition(":")
    try:
        return getattr(importlib.import_module(module), function)
    except (ImportError, AttributeError) as error:
        raise ConfigurationError(f"no role factory {name}: {error}") from error
