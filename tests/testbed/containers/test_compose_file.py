"""What `docker compose` is given: the same containers as the SDK would start, and no secret in the file."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from testbed.containers.compose_file import HOW_TO_GET_IT, compose_text, why_compose_failed
from testbed.containers.container import Attachment, ContainerSpec
from testbed.containers.labels import Ownership

WHOSE = Ownership("me@here", "run-1", 4_000_000_000, "here/1/2")


def spec(**changes: object) -> ContainerSpec:
    settings: dict[str, object] = {
        "name": "gradstorm-run-1-worker-1.1",
        "image": "gradstorm:local",
        "command": ("worker-1", "--listen=worker-1:50051", "$HOME"),
        "whose": WHOSE,
        "role": "worker-1",
        "launch": 1,
        "attachments": (Attachment("links", ("worker-1",)),),
        "entrypoint": ("sh", "-c", 'exec "$@" >>"$0"'),
        "environment": {"TOKEN": "secret", "OMP_NUM_THREADS": "1"},
        "folders": ((Path("/runs/run-1"), "/run-folder"),),
        "user": "10001:10001",
        "hostname": "worker-1",
        "health_check": False,
    }
    return ContainerSpec(**{**settings, **changes})  # type: ignore[arg-type]


def written(one: ContainerSpec) -> dict[str, object]:
    text = compose_text("gradstorm-run-1", [one], {"links": True, "control": False}, WHOSE, ["TOKEN"])
    assert "secret" not in text
    document: dict[str, dict[str, dict[str, object]]] = yaml.safe_load(text)
    assert document["networks"]["links"]["internal"] is True
    assert document["networks"]["control"]["internal"] is False
    assert {network["labels"] == WHOSE.labels() for network in document["networks"].values()} == {True}
    return document["services"][one.role]


def test_a_role() -> None:
    service = written(spec())
    assert service["container_name"] == "gradstorm-run-1-worker-1.1"
    assert service["labels"] == WHOSE.labels("worker-1", 1)
    assert service["restart"] == "no"
    assert service["cap_drop"] == ["ALL"]
    assert service["networks"] == {"links": {"aliases": ["worker-1"]}}
    assert service["volumes"] == [{"type": "bind", "source": "/runs/run-1", "target": "/run-folder"}]
    assert service["environment"] == {"TOKEN": "${TOKEN}", "OMP_NUM_THREADS": "1"}
    assert service["healthcheck"] == {"disable": True}
    assert not {"ports", "mem_limit", "cpus"} & set(service)


def test_a_dollar_sign_stays_one() -> None:
    service = written(spec())
    assert service["entrypoint"] == ["sh", "-c", 'exec "$$@" >>"$$0"']
    assert service["command"] == ["worker-1", "--listen=worker-1:50051", "$$HOME"]


def test_limits_and_ports() -> None:
    service = written(spec(memory_bytes=64 << 20, cpus=0.5, ports=(8474,)))
    assert (service["mem_limit"], service["memswap_limit"], service["cpus"]) == (64 << 20, 64 << 20, 0.5)
    assert service["ports"] == ["127.0.0.1::8474"]


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("docker: 'compose' is not a docker command.\nSee 'docker --help'", HOW_TO_GET_IT),
        ("unknown shorthand flag: 'f' in -f", HOW_TO_GET_IT),
        (" Network x  Creating\nno space left on device\n", "docker compose up: no space left on device"),
        ("", "docker compose up: failed and said nothing"),
    ],
)
def test_why_it_failed_in_one_line(said: str, told: str) -> None:
    assert why_compose_failed("up", said) == told
