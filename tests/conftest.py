"""What every test shares: one BLAS thread, hypothesis profiles, and leaving out what this machine cannot run."""

from __future__ import annotations

import functools
import os
import shutil
import subprocess

import pytest
from hypothesis import settings

# numpy is not imported yet: the number of BLAS threads, read at import, can change the last digit of a sum.
for _name in ("OPENBLAS_NUM_THREADS", "OMP_NUM_THREADS", "MKL_NUM_THREADS", "VECLIB_MAXIMUM_THREADS"):
    os.environ.setdefault(_name, "1")

# A loaded machine is no reason to fail, and the same commit shall give the same result twice.
settings.register_profile("repeatable", deadline=None, derandomize=True, print_blob=True)
settings.register_profile("explore", deadline=None, max_examples=1000)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "repeatable"))

_left_out: list[tuple[str, str]] = []


@functools.cache
def why_no_docker() -> str | None:
    """The reason why container tests cannot run here, or None when a Docker daemon answers."""
    if shutil.which("docker") is None:
        return "no docker command"
    try:
        answer = subprocess.run(
            ["docker", "version", "--format", "{{.Server.Version}}"],
            capture_output=True,
            timeout=10,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return "the Docker daemon does not answer"
    return None if answer.returncode == 0 else "no Docker daemon is running"


@functools.cache
def why_no_hosts() -> str | None:
    """The reason why tests with several hosts cannot run here, or None when network namespaces can be made."""
    if os.name != "posix" or os.geteuid() != 0:
        return "not root"
    if shutil.which("ip") is None:
        return "no ip command"
    name = f"gs{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return None if made else "no network namespaces"


_NEEDS = {"containers": why_no_docker, "hosts": why_no_hosts}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip what this machine cannot run, with the reason; what GRADSTORM_REQUIRE names must run, and fails if not."""
    required = os.environ.get("GRADSTORM_REQUIRE", "").split(",")
    for mark, why in _NEEDS.items():
        needing = [item for item in items if item.get_closest_marker(mark)]
        if not needing or mark in required or (reason := why()) is None:
            continue
        for item in needing:
            item.add_marker(pytest.mark.skip(reason=reason))
            _left_out.append((mark, item.nodeid))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Say in one line what was left out and why; pytest's own closing line follows."""
    for mark, why in _NEEDS.items():
        left = [nodeid for kind, nodeid in _left_out if kind == mark]
        if left:
            files = ", ".join(sorted({nodeid.partition("::")[0] for nodeid in left}))
            terminalreporter.write_line(f"left out: {len(left)} {mark} tests ({why()}): {files}")
