"""Engines that run a scenario, the command line, run directories, reports and benchmarks.

    import testbed
    result = testbed.run("kill-worker", engine="local")

The names are imported on first use, so that `gradstorm` can limit BLAS threads before numpy loads.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from testbed.api import replay, run, verify
    from testbed.results import RunResult

__all__ = ["RunResult", "replay", "run", "verify"]


def __getattr__(name: str) -> Any:
    if name in ("run", "replay", "verify"):
        from testbed import api

        return getattr(api, name)
    if name == "RunResult":
        from testbed.results import RunResult

        return RunResult
    raise AttributeError(f"module 'testbed' has no attribute {name!r}")
