"""What a test needs and this machine may not have: then it is left out, with the reason, and a line says so.

What GRADSTORM_REQUIRE names (containers, hosts; in CI both) must run: there the same is a failure. What is marked
matrix (every cut of a model, the longest testbed by hand) runs where GRADSTORM_REQUIRE names matrix, and nowhere else;
there local processes take both strategies of every scenario, too.
"""

from __future__ import annotations

import functools
import os
import shutil
import subprocess
from collections.abc import Callable, Iterable
from typing import NoReturn

import pytest

REQUIRED_VARIABLE = "GRADSTORM_REQUIRE"
MATRIX = "matrix"


def missing(what: str, need: str = "containers") -> NoReturn:
    """Leave this test out because of `what`, or fail it where it must run."""
    if need in os.environ.get(REQUIRED_VARIABLE, "").split(","):
        pytest.fail(f"{what}, and {REQUIRED_VARIABLE} names {need}", pytrace=False)
    pytest.skip(what)


@functools.cache
def why_no_docker() -> str:
    """The reason why container tests cannot run here, empty when a Docker daemon answers."""
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
    return "" if answer.returncode == 0 else "no Docker daemon is running"


@functools.cache
def why_no_hosts() -> str:
    """The reason why tests with several hosts cannot run here, empty when network namespaces can be made."""
    if os.name != "posix" or os.geteuid() != 0:
        return "not root"
    if shutil.which("ip") is None:
        return "no ip command"
    name = f"gs{os.getpid()}"
    made = subprocess.run(["ip", "netns", "add", name], capture_output=True, check=False).returncode == 0
    subprocess.run(["ip", "netns", "del", name], capture_output=True, check=False)
    return "" if made else "no network namespaces"


def why_no_matrix() -> str:
    """Why the long container runs are left out unless they are asked for."""
    wanted = MATRIX in os.environ.get(REQUIRED_VARIABLE, "").split(",")
    return "" if wanted else f"long; set {REQUIRED_VARIABLE}=containers,{MATRIX}"


NEEDS: dict[str, Callable[[], str]] = {"containers": why_no_docker, "hosts": why_no_hosts, MATRIX: why_no_matrix}
"""Mark -> why tests with it cannot run here."""


def left_out_line(skipped: Iterable[tuple[str, str]]) -> str:
    """One line for people from (test, reason): how many, in which files, and why; empty when nothing was left out."""
    by_reason: dict[str, list[str]] = {}
    for test, reason in skipped:
        by_reason.setdefault(reason, []).append(test.partition("::")[0])
    parts = [f"{len(of)} ({reason}): {', '.join(sorted(set(of)))}" for reason, of in sorted(by_reason.items())]
    return f"tests left out: {'; '.join(parts)}" if parts else ""


def reason_of(longrepr: object) -> str:
    """Why pytest says that a test was skipped: it has (file, line, "Skipped: why")."""
    text = str(longrepr[2]) if isinstance(longrepr, tuple) else str(longrepr)
    return text.removeprefix("Skipped: ")
