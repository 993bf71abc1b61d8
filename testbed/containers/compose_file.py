"""Containers as `docker compose` (v2) wants them: one file made from the same specs that the SDK would start.

    path.write_text(compose_text(project, specs, networks, whose), encoding="utf-8")
    compose(["up", "--detach", …], path, environment)

The run's token is not in the file: it comes from the environment of whoever calls compose.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import yaml

from testbed.containers.container import Attachment, ContainerSpec
from testbed.containers.docker_errors import DockerError, DockerHung
from testbed.containers.docker_target import DockerTarget
from testbed.containers.labels import Ownership

HOW_TO_GET_IT = "`docker compose` (v2) is not there; scripts/docker-compose-plugin makes it"


def compose_text(
    project: str, specs: Iterable[ContainerSpec], networks: Mapping[str, bool], whose: Ownership, secrets: Iterable[str]
) -> str:
    """The file. `networks`: name -> internal. Variables named in `secrets` are taken from compose's own environment."""
    hidden = frozenset(secrets)
    document = {
        "name": project,
        "services": {spec.role: _service(spec, hidden) for spec in specs},
        "networks": {
            name: {"name": name, "internal": internal, "labels": whose.labels()} for name, internal in networks.items()
        },
    }
    text: str = yaml.safe_dump(document, sort_keys=False, width=110)
    return text


def compose(arguments: list[str], file: Path, target: DockerTarget, secrets: Mapping[str, str], bound_s: float) -> None:
    """Run `docker compose` on the file, against that daemon. Raises DockerError with what it said."""
    command = ["docker", "compose", "--file", str(file), *arguments]
    where = {"DOCKER_HOST": target.host} if target.chosen_by == "DOCKER_HOST" else {}
    try:
        done = subprocess.run(
            command,
            env={**os.environ, **where, **secrets},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            timeout=bound_s,
            check=False,
        )
    except FileNotFoundError as error:
        raise DockerError(f"no docker command; {HOW_TO_GET_IT}") from error
    except subprocess.TimeoutExpired as error:
        raise DockerHung(f"docker compose {arguments[0]} did not end within {bound_s:g} s") from error
    if done.returncode != 0:
        raise DockerError(why_compose_failed(arguments[0], done.stderr))


def why_compose_failed(what: str, said: str) -> str:
    """One line from what compose said."""
    if "is not a docker command" in said or "unknown shorthand flag" in said:
        return HOW_TO_GET_IT
    lines = [line.strip() for line in said.splitlines() if line.strip()]
    return f"docker compose {what}: {lines[-1] if lines else 'failed and said nothing'}"


def _service(spec: ContainerSpec, hidden: frozenset[str]) -> dict[str, Any]:
    service: dict[str, Any] = {
        "image": spec.image,
        "container_name": spec.name,
        "command": [_literal(word) for word in spec.command],
        "restart": "no",
        "user": spec.user,
        "cap_drop": ["ALL"],
        "security_opt": ["no-new-privileges:true"],
        "labels": spec.labels,
        "environment": {
            name: f"${{{name}}}" if name in hidden else _literal(value) for name, value in spec.environment.items()
        },
        "networks": {one.network: _attachment(one) for one in spec.attachments},
    }
    if spec.entrypoint is not None:
        service["entrypoint"] = [_literal(word) for word in spec.entrypoint]
    if spec.hostname:
        service["hostname"] = spec.hostname
    if spec.ports:
        service["ports"] = [f"127.0.0.1::{port}" for port in spec.ports]  # a free one, given by the daemon
    if spec.folders:
        service["volumes"] = [
            {"type": "bind", "source": str(outside), "target": inside} for outside, inside in spec.folders
        ]
    if not spec.health_check:
        service["healthcheck"] = {"disable": True}
    if spec.memory_bytes:
        service |= {"mem_limit": spec.memory_bytes, "memswap_limit": spec.memory_bytes}
    if spec.sysctls:
        service["sysctls"] = dict(spec.sysctls)
    if spec.cpus:
        service["cpus"] = spec.cpus
    return service


def _attachment(one: Attachment) -> dict[str, Any]:
    return {"aliases": list(one.aliases)} if one.aliases else {}


def _literal(text: str) -> str:
    """Compose replaces what follows a dollar sign."""
    return text.replace("$", "$$")
