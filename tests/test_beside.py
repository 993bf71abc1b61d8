"""What runs alone does, at the end; what may take longest begins first."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
CONFTEST = """
from pathlib import Path
from tests import beside
from tests.conftest import pytest_collection_modifyitems, pytest_runtest_protocol
beside.DOOR = Path(__file__)
"""
TESTS = """
import threading, time, pytest

def spend(name):
    began = time.monotonic()
    threading.Event().wait(0.3)
    with open("told", "a") as told:
        told.write(f"{began} {time.monotonic()} {name}\\n")

@pytest.mark.alone
@pytest.mark.parametrize("number", range(3))
def test_alone(number): spend("alone")

@pytest.mark.parametrize("number", range(5))
def test_usual(number): spend("usual")

@pytest.mark.timeout(500)
def test_long(): spend("long")

@pytest.mark.timeout(1)
def test_without_end(): threading.Event().wait(60)
"""


GROUPED = """
import os, pytest
pytestmark = pytest.mark.xdist_group("NAME")

@pytest.mark.parametrize("number", range(6))
def test_grouped(number):
    with open("told", "a") as told:
        told.write(f"{os.environ['PYTEST_XDIST_WORKER']} NAME\\n")
"""


@pytest.mark.slow
def test_a_group_has_one_worker(tmp_path: Path) -> None:
    """pytest 9.2 and pytest-xdist 3.8 ignore groups without a word."""
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    for number in range(4):
        (tmp_path / f"test_{number}.py").write_text(GROUPED.replace("NAME", "even" if number % 2 == 0 else "odd"))
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        [*command, "--dist", "loadgroup", "--no-loadscope-reorder"],
        cwd=tmp_path, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert "24 passed" in done.stdout.splitlines()[-1], done.stdout
    told = {tuple(line.split()) for line in (tmp_path / "told").read_text().splitlines()}
    assert sorted(name for _, name in told) == ["even", "odd"], told


@pytest.mark.slow
def test_alone_is_alone_and_last_and_the_longest_begins_first(tmp_path: Path) -> None:
    (tmp_path / "conftest.py").write_text(CONFTEST)
    (tmp_path / "test_some.py").write_text(TESTS)
    (tmp_path / "pytest.ini").write_text("[pytest]\n")
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-n", "2"]
    done = subprocess.run(
        [*command, "--dist", "loadgroup", "--no-loadscope-reorder"],
        env={**os.environ, "PYTHONPATH": str(ROOT)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert "1 failed, 9 passed" in done.stdout.splitlines()[-1], done.stdout  # a timeout holds in a worker, too
    spans = [line.split() for line in (tmp_path / "told").read_text().splitlines()]
    told = sorted((float(began_s), float(ended_s), name) for began_s, ended_s, name in spans)
    assert {name for _, _, name in told[:2]} == {"long", "usual"}
    assert [name for _, _, name in told[-3:]] == ["alone"] * 3
    until_s = max(ended_s for _, ended_s, _ in told[:-3])
    for began_s, ended_s, _ in told[-3:]:
        assert began_s >= until_s
        until_s = ended_s
