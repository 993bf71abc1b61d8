"""Where the roles live: simulator, local processes, containers, several hosts."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING

from training.errors import ConfigurationError

if TYPE_CHECKING:
    from testbed.engines.base import Engine

ENGINE_NAMES = ("sim", "local", "containers", "lan")


def engine_named(name: str) -> Engine:
    """The engine of that name, imported only now. Raises ConfigurationError for another name."""
    if name == "sim":
        from testbed.engines.sim import SimEngine

        return SimEngine()
    if name == "local":
        from testbed.engines.local import LocalEngine

        return LocalEngine()
    if name == "containers":
        from testbed.engines.containers import ContainersEngine

        return ContainersEngine()
    if name == "lan":
        from testbed.engines.lan import LanEngine

        return LanEngine()
    close = difflib.get_close_matches(name, ENGINE_NAMES, n=1)
    hint = f"did you mean {close[0]}?" if close else f"choose one of: {', '.join(ENGINE_NAMES)}"
    raise ConfigurationError(f"no engine {name!r}; {hint}")


def require_one_machine(name: str, what: str) -> None:
    """Raise ConfigurationError for the engine of several hosts, which are attached to a run, and for an unknown one."""
    if engine_named(name).name == "lan":
        raise ConfigurationError(f"{what} on sim, local or containers; gradstorm plan is for runs on several hosts")
