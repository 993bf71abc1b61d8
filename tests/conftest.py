"""What every test shares: one BLAS thread, hypothesis profiles, and leaving out what this machine cannot run."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Iterator

import pytest
from hypothesis import settings

from tests import beside
from tests.counted import COUNTED
from tests.needs import NEEDS, left_out_line, missing, reason_of

# numpy is not imported yet: the number of BLAS threads, read at import, can change the last digit of a sum.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")

# Started in the background, a shell lets us ignore Ctrl-C, and so would every command that the tests interrupt.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)

beside.own_containers()

# A loaded machine is no reason to fail, and the same commit shall give the same result twice.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))


def pytest_sessionfinish() -> None:
    """What pytest collects at its end may be the last of gRPC's objects, and some of their loops are closed."""
    if "grpc" in sys.modules:
        from services.shell.loop import run

        run(asyncio.sleep(0))  # whoever has run this loop once holds gRPC's state


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    beside.put_in_order(items)


@pytest.hookimpl(wrapper=True, tryfirst=True)  # before the test's timeout begins
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    with beside.its_turn(item):
        return (yield)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """What this machine cannot run is left out, with the reason, or fails where it must run."""
    for mark, why in NEEDS.items():
        if item.get_closest_marker(mark) and (reason := why()):
            missing(reason, mark)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say what tests have counted, and in one line what was left out and why; pytest's own closing line follows."""
    for report in terminalreporter.stats.get("passed", []):
        for name, value in report.user_properties:
            if name == COUNTED:
                terminalreporter.write_line(value)
    skipped = terminalreporter.stats.get("skipped", [])
    line = left_out_line((report.nodeid, reason_of(report.longrepr)) for report in skipped)
    if line:
        terminalreporter.write_line(line)
