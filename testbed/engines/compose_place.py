"""A testbed that stands, in containers that `docker compose` brings up: `docker compose ls`, `ps` and `logs` show it.

The same containers as those of a run, from the same specs (`ContainerPlace`), written to `compose.yml` in the run
folder: first Toxiproxy and the networks, then all roles of the first cast in one call. What is launched later (who was
killed, who is added) is started by the SDK. All of it carries our labels and goes by them.
"""

from __future__ import annotations

from pathlib import Path

from services.any_config import SHARDS
from services.shell.options import TOKEN_VARIABLE
from testbed.containers.compose_file import compose, compose_text
from testbed.containers.container import ContainerSpec, ContainerState
from testbed.containers.docker_adapter import Docker
from testbed.engines.base import EngineError
from testbed.engines.container_place import NETWORKS, ContainerPlace
from testbed.engines.local_cast import first_cast

COMPOSE_FILE = "compose.yml"
_UP_S = 120.0
_SPARE = 4


class ComposePlace(ContainerPlace):
    """See the module's docstring."""

    _first: dict[str, ContainerSpec] | None = None  # who is to start with the first call

    @property
    def project(self) -> str:
        """As `docker compose ls` shows it."""
        return f"gradstorm-{self._whose.run_id}".lower()

    def start(self, role: str, launch: int, driver: str) -> None:
        if launch > 1 or role not in first_cast(self._plan):
            super().start(role, launch, driver)
            return
        self._running[role] = False
        first = self._first = {} if self._first is None else self._first
        first[role] = self._spec(role, launch, driver)
        self._ids[role] = first[role].name  # a role may be heard before compose returns
        if set(first) == set(first_cast(self._plan)):
            self._in_lane(_TOGETHER, self._start_first)

    @property
    def spare(self) -> tuple[str, ...]:
        """Workers that may be added: links are laid for them, since a role is told its proxies when it starts."""
        workers = self._plan.config.workers
        strategy = self._plan.config.strategy
        return () if strategy == SHARDS else tuple(f"worker-{workers + more}" for more in range(1, _SPARE + 1))

    def _whole_cast(self) -> tuple[str, ...]:
        return (*super()._whole_cast(), *self.spare)

    def _start_first(self) -> None:
        roles = self._first or {}
        self._compose([*self._before, *roles.values()], list(roles))

    def _create_networks(self, docker: Docker) -> None:
        """Compose makes them, with Toxiproxy on them."""
        self._before = [self._toxiproxy_spec()]
        self._compose(self._before, [])

    def _start_container(self, docker: Docker, spec: ContainerSpec) -> ContainerState:
        if spec.role in self._before_roles:
            return docker.inspect(spec.name)
        return super()._start_container(docker, spec)

    @property
    def _before_roles(self) -> set[str]:
        return {spec.role for spec in self._before}

    def _compose(self, specs: list[ContainerSpec], services: list[str]) -> None:
        file: Path = self._folder.path / COMPOSE_FILE
        networks = {self._network(name): internal for name, internal in NETWORKS.items()}
        try:
            file.write_text(
                compose_text(self.project, specs, networks, self._whose, {TOKEN_VARIABLE}), encoding="utf-8"
            )
        except OSError as error:
            raise EngineError(f"cannot write {file}: {error.strerror or error}") from error
        secrets = {TOKEN_VARIABLE: self._plan.token}
        compose(["up", "--detach", "--no-build", *services], file, self._connected.target, secrets, _UP_S)


_TOGETHER = "(all of the first cast)"
