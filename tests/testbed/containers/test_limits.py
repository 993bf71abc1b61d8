"""How much of the machine a role's container may take, and what is said when that is too little."""

from __future__ import annotations

from pathlib import Path

import pytest

from testbed.cli import run_command
from testbed.containers.docker_adapter import Docker
from testbed.containers.limits import Limits, read_limits
from tests.conformance.container_runs import run_id_said
from training.errors import ConfigurationError


def test_no_limit_where_nothing_is_said() -> None:
    assert read_limits({}) == read_limits({"GRADSTORM_ROLE_MEMORY": "", "GRADSTORM_ROLE_CPUS": ""}) == Limits()


def test_amounts() -> None:
    found = read_limits({"GRADSTORM_ROLE_MEMORY": "512m", "GRADSTORM_ROLE_CPUS": "0.5"})
    assert found == Limits(512 << 20, 0.5)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("GRADSTORM_ROLE_MEMORY", "much"),
        ("GRADSTORM_ROLE_MEMORY", "1k"),
        ("GRADSTORM_ROLE_MEMORY", "-5m"),
        ("GRADSTORM_ROLE_CPUS", "half"),
        ("GRADSTORM_ROLE_CPUS", "0"),
        ("GRADSTORM_ROLE_CPUS", "nan"),
    ],
)
def test_what_is_no_amount_is_refused_by_name(name: str, text: str) -> None:
    with pytest.raises(ConfigurationError, match=f"{name}={text}"):
        read_limits({name: text})


@pytest.mark.containers
@pytest.mark.slow
def test_too_little_memory_is_named_as_such(
    tmp_path: Path, docker: Docker, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("GRADSTORM_ROLE_MEMORY", "30m")
    assert run_command(["run", "clean", "--engine", "containers", "--out", str(tmp_path / "run")]) == 3
    said = capsys.readouterr().err
    assert "was killed for want of memory: 30 MiB is too little for it" in said
    run_id = run_id_said(said)
    assert docker.containers(run_id=run_id) == []
    assert docker.networks(run_id=run_id) == {}
