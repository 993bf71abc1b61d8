"""Tests beside each other (pytest-xdist, `make test`): who begins first, who runs alone, whose containers are whose.

Workers share the machine and the Docker daemon. What measures times or memory is marked `alone`: such tests come last,
one at a time, while nothing else runs. Of the others those that may take longest (by their timeout) begin first, so
that none of them is what everybody waits for at the end. Each worker is an owner of its own on the daemon, since a run
sweeps what dead drivers of its owner left, and some tests look at just that.
"""

from __future__ import annotations

import fcntl
import getpass
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

WORKER = os.environ.get("PYTEST_XDIST_WORKER", "")  # empty where tests run one after the other
DOOR = Path(__file__)  # locked by all workers: one alone, or any number beside each other


def own_containers() -> None:
    """Call once in each process: make it an owner (`testbed.containers.labels`) of its own."""
    if WORKER:
        os.environ["LOGNAME"] = f"{getpass.getuser()}-{WORKER}"


def put_in_order(items: list[pytest.Item]) -> None:
    """Longest first, `alone` last; otherwise as they were. A process that runs all tests keeps their order."""
    if WORKER:
        items.sort(key=lambda item: (item.get_closest_marker("alone") is not None, -_timeout_s(item)))


def _timeout_s(item: pytest.Item) -> float:
    mark = item.get_closest_marker("timeout")
    return float(mark.args[0]) if mark is not None else 0.0


@contextmanager
def its_turn(item: pytest.Item) -> Iterator[None]:
    """Hold while the test runs: alone where it is marked so, else beside others. Waits without end: each test has one.

    No test can keep an `alone` one waiting for ever, since those come last.
    """
    if not WORKER:
        yield
        return
    with DOOR.open("rb") as door:
        fcntl.flock(door, fcntl.LOCK_EX if item.get_closest_marker("alone") else fcntl.LOCK_SH)
        try:
            yield
        finally:
            fcntl.flock(door, fcntl.LOCK_UN)  # whatever a test forked may hold the file still
