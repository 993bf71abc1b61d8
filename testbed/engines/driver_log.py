"""What the driver of a run writes down for itself: one JSON document per line."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from services.shell.logs import json_log


@contextlib.contextmanager
def driver_log(path: Path) -> Iterator[Any]:
    """A logger that appends to that file while the context lasts."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    try:
        yield json_log(lambda: descriptor)
    finally:
        os.close(descriptor)
