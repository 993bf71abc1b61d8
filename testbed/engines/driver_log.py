"""What the driver of a run writes down for itself: one JSON document per line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import structlog


class _Lines:
    """Appends lines to a file. A disk that is full takes no more of them: that ends the log, not the run."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor

    def msg(self, message: str) -> None:
        with contextlib.suppress(OSError):
            os.write(self._descriptor, f"{message}\n".encode())

    log = debug = info = warn = warning = error = critical = exception = msg


@contextlib.contextmanager
def driver_log(path: Path) -> Iterator[Any]:
    """A logger that appends to that file while the context lasts."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield structlog.wrap_logger(
            _Lines(descriptor),
            processors=[
                structlog.processors.add_log_level,
                structlog.processors.TimeStamper(fmt="iso", utc=True),
                structlog.processors.format_exc_info,
                structlog.processors.JSONRenderer(sort_keys=True, default=str),
            ],
            wrapper_class=structlog.BoundLogger,
        )
    finally:
        os.close(descriptor)
