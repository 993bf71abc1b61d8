"""The role's log: one JSON object per line on standard error, which whoever starts the process puts into a file."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

import structlog

from services.shell.options import ShellOptions


class _Lines:
    """Writes lines to standard error. A disk that is full takes no more of them: that ends the log, not the role."""

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            os.write(sys.stderr.fileno(), f"{message}\n".encode())

    log = debug = info = warn = warning = error = critical = exception = msg


def role_log(options: ShellOptions, position: dict[str, int]) -> Any:
    """A logger bound to run, role and launch, and to where the role stands by the time of each line.

    `position` (incarnation, generation, step) is kept up to date by the runner.
    """

    def positioned(_logger: Any, _method: str, entry: Any) -> Any:
        return {**position, **entry}

    return _json_log(positioned).bind(run=options.run_id, role=options.role, launch=options.launch)


def host_log(role: str) -> Any:
    """A logger of a host that waits to be attached."""
    return _json_log().bind(host=role)


def _json_log(*first: Any) -> Any:
    return structlog.wrap_logger(
        _Lines(),
        processors=[
            *first,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True, default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    )
