"""scripts/docker-daemon where the daemon does not come up: it says why, with exit code 3, and leaves nothing.

In a network namespace of its own, since beside another daemon it refuses (rightly) before it tries.
"""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import missing

pytestmark = pytest.mark.containers
SCRIPT = Path(__file__).resolve().parents[3] / "scripts" / "docker-daemon"


@pytest.fixture
def folder() -> Iterator[Path]:
    """One with a short name: the path of a socket has its limits."""
    with tempfile.TemporaryDirectory(prefix="gsd-", dir="/tmp") as name:
        yield Path(name)


@pytest.mark.parametrize("after", ["", "iptables -N DOCKER && iptables -A FORWARD -o docker0 -j DOCKER"])
def test_a_daemon_that_dies_at_start_is_told_and_leaves_nothing(tmp_path: Path, folder: Path, after: str) -> None:
    if os.getuid() != 0:
        missing("a network namespace takes root")
    dockerd = tmp_path / "bin" / "dockerd"
    dockerd.parent.mkdir()
    dockerd.write_text(f"#!/bin/sh\necho 'no storage driver'\n{after}\nexit 1\n", encoding="utf-8")
    dockerd.chmod(0o755)
    environment = {**os.environ, "PATH": f"{dockerd.parent}:{os.environ['PATH']}"}
    start = f"{SCRIPT} start {folder}; code=$?; iptables -S; exit $code"
    told = subprocess.run(
        ["unshare", "--net", "bash", "-c", start],
        env=environment,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert told.returncode == 3, told.stderr
    assert "no storage driver" in told.stderr
    assert "no daemon answered" in told.stderr
    assert "DOCKER" not in told.stdout
    left = {path.name for path in folder.iterdir()}
    assert left <= {".gradstorm-docker", "daemon.log"}
