"""The wheel carries what an installed Gradstorm needs, and the dependency lists agree with each other."""

from __future__ import annotations

import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

ROOT = Path(__file__).resolve().parent.parent
LOCKS = {"requirements.in": "requirements.lock", "requirements-proto.in": "requirements-proto.lock"}
PACKAGES = {"training", "services", "chaos", "testbed"}
DATA = ("chaos/scenarios/**/*.yaml", "services/**/*.json", "testbed/**/*.json", "testbed/**/*.j2")


def entries(name: str) -> list[tuple[Requirement, str]]:
    """Requirements of a .in file, each with the reason that stands beside it."""
    found = []
    for line in (ROOT / name).read_text(encoding="utf-8").splitlines():
        requirement, _, reason = line.partition("#")
        if requirement.strip():
            found.append((Requirement(requirement.strip()), reason.strip()))
    return found


def pinned(name: str) -> dict[str, Version]:
    """Name and version of everything that a lock file pins."""
    text = (ROOT / name).read_text(encoding="utf-8")
    pins = re.findall(r"^([A-Za-z0-9._-]+)==([^\s;\\]+)", text, flags=re.MULTILINE)
    return {canonicalize_name(project): Version(version) for project, version in pins}


def project() -> dict[str, list[str]]:
    """The [project] table of pyproject.toml."""
    table: dict[str, list[str]] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return table


@pytest.mark.parametrize("name", LOCKS)
def test_every_dependency_has_a_reason(name: str) -> None:
    assert [str(requirement) for requirement, reason in entries(name) if not reason] == []


@pytest.mark.parametrize("name", LOCKS)
def test_the_lock_satisfies_what_is_asked_for(name: str) -> None:
    pins = pinned(LOCKS[name])
    for requirement, _ in entries(name):
        version = pins.get(canonicalize_name(requirement.name))
        assert version is not None, f"{requirement} is not in {LOCKS[name]}; run 'make lock'"
        assert version in requirement.specifier, f"{LOCKS[name]} pins {version}, {name} asks for {requirement}"


@pytest.mark.parametrize("lock", LOCKS.values())
def test_the_lock_is_hashed_and_has_no_address(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    pins = re.split(r"^(?=\S+==)", text, flags=re.MULTILINE)[1:]
    assert pins
    assert [pin.splitlines()[0] for pin in pins if "--hash=sha256:" not in pin] == []
    assert "://" not in text


def test_pyproject_repeats_the_runtime_requirements() -> None:
    declared = {str(Requirement(line)) for line in project()["dependencies"]}
    asked_for = {str(requirement) for requirement, _ in entries("requirements.in")}
    assert declared <= asked_for, "pyproject.toml and requirements.in differ"
    runtime = (ROOT / "requirements.in").read_text(encoding="utf-8").partition("# --- development ---")[0]
    names = {line.partition("==")[0] for line in runtime.splitlines() if line[:1].isalpha()}
    assert {Requirement(line).name for line in declared} == names


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> zipfile.ZipFile:
    """A wheel of this checkout, built as `make setup` builds: with the locked hatchling, without network."""
    folder = tmp_path_factory.mktemp("wheel")
    built = subprocess.run(
        [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert built.returncode == 0, built.stdout + built.stderr
    (path,) = folder.glob("gradstorm-*.whl")
    return zipfile.ZipFile(path)


def test_the_wheel_has_the_packages_and_nothing_else(wheel: zipfile.ZipFile) -> None:
    tops = {name.partition("/")[0] for name in wheel.namelist()}
    assert {top for top in tops if not top.endswith(".dist-info")} == PACKAGES


def test_the_wheel_has_the_command(wheel: zipfile.ZipFile) -> None:
    (entry_points,) = [name for name in wheel.namelist() if name.endswith("entry_points.txt")]
    assert "gradstorm = testbed.cli:main" in wheel.read(entry_points).decode()


def test_the_wheel_carries_the_data(wheel: zipfile.ZipFile) -> None:
    """Scenarios, schemas and templates lie in the packages; the wire contract is put beside its generated code."""
    expected = {path.relative_to(ROOT).as_posix() for pattern in DATA for path in ROOT.glob(pattern)}
    expected |= {f"services/wire/{path.relative_to(ROOT).as_posix()}" for path in ROOT.glob("proto/**/*.proto")}
    expected |= {f"testbed/experiments/committed/{path.name}" for path in (ROOT / "experiments").glob("*.*")}
    assert expected <= set(wheel.namelist())
