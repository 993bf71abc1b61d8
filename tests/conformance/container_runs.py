"""A run in containers as a command of its own, and a look at its containers from outside, by label."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

from testbed.run_folder import RunFolder

if TYPE_CHECKING:
    from testbed.containers.container import ContainerState
    from testbed.containers.docker_adapter import Docker
    from testbed.containers.toxiproxy import Toxiproxy

ROOT = Path(__file__).resolve().parents[2]
UP_WITHIN_S = 120.0
GONE_WITHIN_S = 60.0
_API_PORT = 8474


@contextmanager
def connected() -> Iterator[Docker]:
    """To the daemon that the runs use, too."""
    from testbed.containers.docker_adapter import Docker

    docker = Docker.connect(os.environ, timeout_s=60.0)
    try:
        yield docker
    finally:
        docker.close()


def run_id_said(told: str) -> str:
    """Of a run that did not begin, whose folder is gone: from the first line of its progress."""
    match = re.search(r"^run (\S+) in ", told, re.MULTILINE)
    assert match is not None, told
    return match[1]


def left_of(docker: Docker, run_id: str) -> list[str]:
    """Names of what the daemon still has of that run."""
    return [one.name for one in docker.containers(run_id=run_id)] + list(docker.networks(run_id=run_id))


@contextmanager
def running(folder: Path, scenario: str, *options: str) -> Iterator[tuple[subprocess.Popen[str], Path]]:
    """`gradstorm run SCENARIO --engine containers` in a process of its own, and the file of its progress."""
    told = folder / "stderr"
    command = [sys.executable, "-m", "testbed.cli", "run", scenario, "--engine", "containers", *options]
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    with (
        told.open("w") as stderr,
        subprocess.Popen(
            [*command, "--out", str(folder / "run")],
            stdout=subprocess.DEVNULL,
            stderr=stderr,
            env=environment,
            text=True,
            start_new_session=True,
        ) as driver,
    ):
        try:
            yield driver, told
        finally:
            driver.kill()


def run_id_of(folder: Path) -> str:
    return str(RunFolder(folder / "run").manifest()["run_id"])


def container_of(docker: Docker, folder: Path, role: str) -> ContainerState | None:
    """The role's running container, once there is one."""
    if not (folder / "run" / "manifest.json").exists():
        return None
    alive = [one for one in docker.containers(run_id=run_id_of(folder)) if one.role == role and one.alive]
    return alive[-1] if alive else None


def toxiproxy_of(docker: Docker, folder: Path) -> Toxiproxy | None:
    """The run's own Toxiproxy, once it is up."""
    from testbed.containers.toxiproxy import Toxiproxy

    there = container_of(docker, folder, "toxiproxy")
    return Toxiproxy(there.published[_API_PORT]) if there is not None and _API_PORT in there.published else None


def log_of(folder: Path, role: str, launch: int = 1) -> str:
    path = RunFolder(folder / "run").log_path(role, launch)
    return path.read_text(encoding="utf-8") if path.exists() else ""
