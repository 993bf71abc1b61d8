"""What the image installs is what developers run: the same versions, the same hashes, nothing unpinned."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]


def pins(name: str) -> dict[str, frozenset[str]]:
    """Pinned requirement -> its hashes."""
    text = (ROOT / name).read_text(encoding="utf-8")
    blocks = re.split(r"^(?=[A-Za-z0-9._-]+==)", text, flags=re.MULTILINE)[1:]
    return {block.split()[0]: frozenset(re.findall(r"sha256:[0-9a-f]{64}", block)) for block in blocks}


@pytest.mark.parametrize("name", ["requirements-runtime.lock", "requirements-build.lock"])
def test_it_is_a_part_of_the_whole_lock(name: str) -> None:
    part, whole = pins(name), pins("requirements.lock")
    assert part
    assert {pin: hashes for pin, hashes in part.items() if not hashes or whole.get(pin) != hashes} == {}


def test_the_runtime_has_no_tools_of_developers() -> None:
    names = {pin.partition("==")[0] for pin in pins("requirements-runtime.lock")}
    assert names.isdisjoint({"pytest", "mypy", "ruff", "hypothesis", "hatchling"})
    assert {"numpy", "grpcio", "docker"} <= names


def test_what_the_dockerfile_copies_is_let_through() -> None:
    dockerfile = (ROOT / "Dockerfile").read_text(encoding="utf-8")
    copied = {
        source.rstrip("/")
        for line in re.findall(r"^COPY (?!--from)(.+)$", dockerfile, flags=re.MULTILINE)
        for source in line.split()[:-1]
    }
    ignore = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignore
    assert copied == {line[1:] for line in ignore if line.startswith("!")}
