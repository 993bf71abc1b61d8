"""What to start on which host, as commands to paste. Pure: `gradstorm plan` prints it.

Members are dealt to the hosts in turn. Each listens for the driver at the first of two ports, and its role at the
second one, so that a firewall needs to open those and nothing else; the driver's own roles take free ports.
"""

from __future__ import annotations

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from services.any_config import AnyRunConfig
from services.identity import cut_of, model_sha256
from testbed.lan.settings import is_address
from training.errors import ConfigurationError


@dataclass(frozen=True, slots=True)
class Listening:
    """One member on one host."""

    role: str
    host: str
    port: int

    @property
    def address(self) -> str:
        return f"{self.host}:{self.port}"


@dataclass(frozen=True, slots=True)
class Block:
    """Lines to paste on one host. `background`: each of them waits, so start them all before the last block."""

    host: str
    lines: tuple[str, ...]
    background: bool


def deal(members: Sequence[str], hosts: Sequence[str], first_port: int) -> tuple[Listening, ...]:
    """Which member listens where. Raises ConfigurationError for hosts that cannot be."""
    if not hosts or any(not host for host in hosts):
        raise ConfigurationError("--hosts needs at least one name or address, with commas between them")
    if strange := [host for host in hosts if not is_address(f"{host}:1")]:
        raise ConfigurationError(
            f"--hosts: {strange[0]!r} is no name or address; an IPv6 one stands in brackets: [::1]"
        )
    if len(set(hosts)) < len(hosts):
        raise ConfigurationError("--hosts names a host twice; a host takes several members by itself")
    last = first_port + 2 * ((len(members) - 1) // len(hosts)) + 1
    if not (first_port >= 1 and last <= 65535):
        raise ConfigurationError(f"--port {first_port}: the members need ports up to {last}")
    return tuple(
        Listening(role, hosts[index % len(hosts)], first_port + 2 * (index // len(hosts)))
        for index, role in enumerate(members)
    )


def listening_line(config: AnyRunConfig, where: Listening, run_id: str) -> str:
    """The command that makes a host wait for this member's driver, and for nobody else."""
    kind, _, number = where.role.partition("-")
    cut = cut_of(config, where.role)
    return shlex.join(
        [
            "gradstorm", kind, number, "--listen", where.address, "--role-port", str(where.port + 1),
            "--run-id", run_id, "--model-sha256", model_sha256(config), *(("--cut", cut) if cut else ()),
        ]
    )  # fmt: skip


def blocks(
    config: AnyRunConfig, run_id: str, token: str, placed: Sequence[Listening], at: str, run_options: Sequence[str]
) -> tuple[Block, ...]:
    """One block for each host, and the driver's last. `run_options`: the scenario and what changes in it."""
    export = shlex.join(["export", f"GRADSTORM_TOKEN={token}"])
    found = []
    for host in dict.fromkeys(where.host for where in placed):
        lines = [listening_line(config, where, run_id) for where in placed if where.host == host]
        found.append(Block(host, (export, *(f"{line} &" for line in lines)), background=True))
    attach = ",".join(f"{where.role}={where.address}" for where in placed)
    run = ["gradstorm", "run", *run_options, "--engine", "lan", "--run-id", run_id, "--at", at, "--attach", attach]
    return (*found, Block(at, (export, shlex.join(run)), background=False))


def text_of(plan: Sequence[Block]) -> list[str]:
    """The lines that are printed: comments and commands, so that the whole is a shell script, host by host."""
    lines = [
        "# The token is the run's secret: whoever has it can take part. Give it to these hosts and to nobody else."
    ]
    for block in plan:
        when = "each of them waits" if block.background else "last, when the others wait"
        lines += ["", f"# on {block.host} ({when})", *block.lines]
    return lines
