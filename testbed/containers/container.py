"""A container as we ask for it and as the daemon shows it."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from testbed.containers.labels import LAUNCH, ROLE, Ownership, read_ownership

SIGKILL_EXIT_CODE = 137


@dataclass(frozen=True, slots=True)
class Attachment:
    """How a container hangs on a network. The address may be another one after it was taken off and put back."""

    network: str
    aliases: tuple[str, ...] = ()
    address: str = ""


@dataclass(frozen=True, slots=True)
class ContainerSpec:
    """What to start. Nothing starts again by itself, and the process has no privileges."""

    name: str
    image: str
    command: tuple[str, ...]
    whose: Ownership
    role: str
    launch: int
    attachments: tuple[Attachment, ...]
    entrypoint: tuple[str, ...] | None = None
    environment: Mapping[str, str] = field(default_factory=dict, repr=False)  # has the run's token
    folders: tuple[tuple[Path, str], ...] = ()  # (on the host, in the container), writable
    ports: tuple[int, ...] = ()  # reachable from this machine's loopback, each at a free port
    user: str = ""
    hostname: str = ""  # resolves to its address on the first network, inside of it
    health_check: bool = True  # the image's own; off where the driver hears from the role anyway
    memory_bytes: int = 0  # 0: no limit
    cpus: float = 0.0
    sysctls: Mapping[str, str] = field(default_factory=dict)  # of its network namespace

    @property
    def labels(self) -> dict[str, str]:
        return self.whose.labels(self.role, self.launch)


@dataclass(frozen=True, slots=True)
class ContainerState:
    """One look at a container. `exit_code` is None while its process runs."""

    name: str
    id: str
    status: str  # "created" | "running" | "paused" | "exited" | "dead" | …
    health: str  # "" without a health check | "starting" | "healthy" | "unhealthy"
    exit_code: int | None
    oom_killed: bool
    error: str
    pid: int
    started_at: str
    finished_at: str
    role: str
    launch: int
    whose: Ownership | None
    attachments: tuple[Attachment, ...]
    published: Mapping[int, str]  # port in the container -> "127.0.0.1:port" on the machine of the daemon

    @property
    def alive(self) -> bool:
        """It has a process, paused or not."""
        return self.exit_code is None and self.status in ("running", "paused", "restarting")

    def address_on(self, network: str) -> str:
        """Its IP address there, empty when it is not on that network."""
        return next((there.address for there in self.attachments if there.network == network), "")

    def how_it_ended(self) -> str:
        """For people: empty while it lives."""
        if self.exit_code is None:
            return ""
        if self.oom_killed:
            return f"exit code {self.exit_code}: killed by the kernel for want of memory (its limit is too small)"
        return f"exit code {self.exit_code}{': ' + self.error if self.error else ''}"


def read_container(document: Any) -> ContainerState:
    """A container from what `inspect` shows of it."""
    state, labels = document["State"], document["Config"].get("Labels") or {}
    networks = document["NetworkSettings"].get("Networks") or {}
    alive = state["Status"] in ("created", "running", "paused", "restarting")
    launch = labels.get(LAUNCH, "0")
    return ContainerState(
        name=document["Name"].lstrip("/"),
        id=document["Id"],
        status=state["Status"],
        health=(state.get("Health") or {}).get("Status", ""),
        exit_code=None if alive else int(state["ExitCode"]),
        oom_killed=bool(state.get("OOMKilled")),
        error=state.get("Error", ""),
        pid=int(state.get("Pid", 0)),
        started_at=state.get("StartedAt", ""),
        finished_at=state.get("FinishedAt", ""),
        role=labels.get(ROLE, ""),
        launch=int(launch) if launch.isdigit() else 0,
        whose=read_ownership(labels),
        attachments=tuple(_read_attachment(name, networks[name], document["Id"]) for name in sorted(networks)),
        published=_read_ports(document["NetworkSettings"].get("Ports") or {}),
    )


def _read_ports(document: Mapping[str, Any]) -> dict[int, str]:
    """From {"8474/tcp": [{"HostIp": "127.0.0.1", "HostPort": "32768"}], …}."""
    first = {int(port.partition("/")[0]): bound[0] for port, bound in document.items() if bound}
    return {port: f"{bound['HostIp']}:{bound['HostPort']}" for port, bound in sorted(first.items())}


def _read_attachment(network: str, document: Any, container_id: str) -> Attachment:
    own = {container_id[:12]}  # Docker's own alias, which cannot be given again
    aliases = tuple(alias for alias in document.get("Aliases") or () if alias not in own)
    return Attachment(network, aliases, document.get("IPAddress", ""))
