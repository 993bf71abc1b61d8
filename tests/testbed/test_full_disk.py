"""A run folder on a disk that is too small: the run is stopped by that name, with exit code 5, and nothing is left."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.needs import missing

pytestmark = [pytest.mark.slow, pytest.mark.timeout(240)]
ROOT = Path(__file__).resolve().parents[2]


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """600 KB, of which a run of a hundred steps wants more."""
    if os.geteuid() != 0:
        missing("mounting a small disk takes root", "hosts")
    mounted = ["mount", "-t", "tmpfs", "-o", "size=600k", "tmpfs", str(tmp_path)]
    if subprocess.run(mounted, capture_output=True, check=False).returncode != 0:
        missing("no small disk can be mounted", "hosts")
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)


@pytest.mark.parametrize(
    "engine",
    [pytest.param("local", marks=pytest.mark.local), pytest.param("containers", marks=pytest.mark.containers)],
)
def test_a_full_disk_stops_the_run_by_name(small_disk: Path, engine: str) -> None:
    command = [sys.executable, "-m", "testbed.cli", "run", "clean", "--engine", engine, "--steps", "400"]
    ended = subprocess.run(
        [*command, "--out", str(small_disk / "run")],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        timeout=200,
        check=False,
    )
    told = ended.stdout + ended.stderr
    assert ended.returncode == 5, told
    assert "STOPPED by disk ENOSPC" in ended.stdout.splitlines()[-1], told
    assert "Traceback" not in told
