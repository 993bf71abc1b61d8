"""Which Docker daemon is meant, resolved as the command line tool does, and said before anything is done to it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from docker import errors
from docker.context import ContextAPI
from docker.utils import kwargs_from_env

from testbed.containers.docker_errors import DockerUnavailable

DEFAULT_HOST = "unix:///var/run/docker.sock"


@dataclass(frozen=True, slots=True)
class DockerTarget:
    """`chosen_by` is what decided: DOCKER_HOST, a context, or nothing."""

    host: str
    chosen_by: str
    connection: Mapping[str, Any] = field(repr=False)  # for the SDK's client

    def __str__(self) -> str:
        return f"{self.host} ({self.chosen_by})"


def find_target(environment: Mapping[str, str]) -> DockerTarget:
    """DOCKER_HOST, else DOCKER_CONTEXT, else the current context, else the default socket.

    A context that does not exist is an error: the SDK would silently take the default daemon, which is another one.
    """
    try:
        connection: dict[str, Any] = {**kwargs_from_env(environment=dict(environment))}
        if "base_url" in connection:
            return DockerTarget(str(connection["base_url"]), "DOCKER_HOST", connection)
        name = environment.get("DOCKER_CONTEXT") or None
        context = ContextAPI.get_context(name)
        if name and context is None:
            raise DockerUnavailable(f"DOCKER_CONTEXT={name}: there is no such context (docker context ls shows all)")
        connection |= ContextAPI.kwargs_from_context(name=name, environment=dict(environment))
    except errors.DockerException as error:
        raise DockerUnavailable(f"cannot tell which Docker daemon is meant: {error}") from error
    host = str(connection.setdefault("base_url", DEFAULT_HOST))
    return DockerTarget(host, f"context {context.Name if context else 'default'}", connection)
