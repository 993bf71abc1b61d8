"""Logs: one JSON object per line. A role's goes to standard error; whoever starts the process puts that into a file."""

from __future__ import annotations

import contextlib
import os
import sys
from collections.abc import Callable
from typing import Any

import structlog

from services.shell.options import ShellOptions


class _Lines:
    """Appends lines to a file. A disk that is full takes no more of them: that ends the log, not whoever writes it."""

    def __init__(self, fileno: Callable[[], int]) -> None:
        self._fileno = fileno

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._fileno(), f"{message}\n".encode())

    log = debug = info = warn = warning = error = critical = exception = msg


def role_log(options: ShellOptions, position: dict[str, int]) -> Any:
    """A logger bound to run, role and launch, and to where the role stands by the time of each line.

    `position` (incarnation, generation, step) is kept up to date by the runner.
    """

    def positioned(_logger: Any, _method: str, entry: Any) -> Any:
        return {**position, **entry}

    return json_log(_stderr, positioned).bind(run=options.run_id, role=options.role, launch=options.launch)


def host_log(role: str) -> Any:
    """A logger of a host that waits to be attached."""
    return json_log(_stderr).bind(host=role)


def json_log(fileno: Callable[[], int], *first: Any) -> Any:
    """A logger that appends one JSON object a line to the file that `fileno` gives; `first` change an entry before."""
    return structlog.wrap_logger(
        _Lines(fileno),
        processors=[
            *first,
            structlog.processors.add_log_level,
            structlog.processors.TimeStamper(fmt="iso", utc=True),
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(sort_keys=True, default=str),
        ],
        wrapper_class=structlog.BoundLogger,
    )


def _stderr() -> int:
    return sys.stderr.fileno()
