"""The machine while something is measured: one benchmark at a time, and what else was running meanwhile."""

from __future__ import annotations

import contextlib
import fcntl
import os
import resource
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import psutil

from training.errors import ConfigurationError


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """Hold the machine's one place for a benchmark. Raises ConfigurationError when somebody else holds it."""
    path = Path(tempfile.gettempdir()) / f"gradstorm-bench-{os.getuid()}.lock"
    with path.open("a") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ConfigurationError("another gradstorm bench is measuring; wait until it is done") from None
        yield


class LoadWatch:
    """What others do with the machine from now on: all that its cores did, less what we and our children did."""

    def __init__(self) -> None:
        self._load_before = os.getloadavg()[0]
        self._began_s = time.perf_counter()
        self._busy_s = _busy_s()
        self._own_s = _own_s()

    def told(self) -> str:
        """Load average at the beginning, and how many cores others kept busy since, on average."""
        passed_s = max(time.perf_counter() - self._began_s, 1e-9)
        others = max(0.0, (_busy_s() - self._busy_s) - (_own_s() - self._own_s)) / passed_s
        return f"load average {self._load_before:.1f} before; others used {others:.1f} of {os.cpu_count()} cores"


def _busy_s() -> float:
    times = psutil.cpu_times()
    return float(sum(getattr(times, name, 0.0) for name in ("user", "nice", "system", "irq", "softirq", "steal")))


def _own_s() -> float:
    usages = (resource.getrusage(resource.RUSAGE_SELF), resource.getrusage(resource.RUSAGE_CHILDREN))
    return sum(usage.ru_utime + usage.ru_stime for usage in usages)
