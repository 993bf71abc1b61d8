"""`gradstorm worker|shard|coordinator|server|verifier --listen HOST:PORT`: wait to be attached to a run."""

from __future__ import annotations

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from testbed.lan.host import HostSettings

_ROLES = ("worker", "shard", "coordinator", "server", "verifier")
_Listen = Annotated[str, typer.Option(help="HOST:PORT to wait at; the role itself listens at the same HOST.")]
_Number = Annotated[int | None, typer.Argument(metavar="[N]", help="Which worker or shard; else as the driver says.")]
_RunId = Annotated[str, typer.Option(help="Refuse every other run.")]
_Model = Annotated[str, typer.Option("--model-sha256", help="Refuse a run that trains another model.")]
_Cut = Annotated[str, typer.Option(help="Of a shard, as 2:4/6: refuse other blocks than 2 and 3 of 6.")]
_RolePort = Annotated[int, typer.Option(min=0, max=65535, help="Where the role listens; 0: a free port.")]
_Home = Annotated[Path | None, typer.Option("--dir", help="Where the role's files go, in RUN/ROLE.")]
_Patience = Annotated[float, typer.Option(min=1.0, help="Seconds to wait for a driver.")]


def add_to(app: typer.Typer) -> None:
    """Register one command per role."""
    for role in _ROLES:
        app.command(role, help=f"Wait on this host, as a {role}, to be attached to a run (see gradstorm plan).")(
            _waiting(role)
        )


def _waiting(kind: str) -> Callable[..., None]:
    def wait(
        listen: _Listen,
        number: _Number = None,
        run_id: _RunId = "",
        model: _Model = "",
        cut: _Cut = "",
        role_port: _RolePort = 0,
        home: _Home = None,
        patience_s: _Patience = 3600.0,
    ) -> None:
        from services.identity import Claim
        from testbed.environment import version
        from testbed.lan.host import HostSettings
        from testbed.places import require_folder
        from testbed.run_folder import runs_home

        _require(listen, cut)
        claim = Claim(_role(kind, number), cut, model, run_id, version())
        token = os.environ.get("GRADSTORM_TOKEN", "")
        files = home or runs_home() / "hosts"
        require_folder(files, "the folder of the role's files", "--dir or GRADSTORM_HOME")
        _run(HostSettings(claim, token, listen, role_port, files, patience_s))

    return wait


def _require(listen: str, cut: str) -> None:
    from testbed.lan.settings import is_address
    from training.errors import ConfigurationError

    if not is_address(
        listen, least_port=0
    ):  # gRPC would take 443 where a port is missing, and another for one too high
        raise ConfigurationError(f"--listen {listen!r} is not HOST:PORT; an IPv6 host stands in brackets: [::1]:7070")
    if cut and not re.fullmatch(r"[0-9]+:[0-9]+/[0-9]+", cut):
        raise ConfigurationError(f"--cut {cut!r} is not FIRST:STOP/BLOCKS, as 2:4/6")


def _role(kind: str, number: int | None) -> str:
    from training.errors import ConfigurationError

    if number is None:
        return kind
    if kind not in ("worker", "shard") or number < 1:
        raise ConfigurationError(f"{kind} {number}: only workers and shards have numbers, from 1")
    return f"{kind}-{number}"


def _run(settings: HostSettings) -> None:
    from services.shell.logs import host_log
    from services.shell.loop import run
    from testbed.lan.host import host
    from training.errors import ConfigurationError

    if not settings.token:
        raise ConfigurationError("a host needs the token of the run: set GRADSTORM_TOKEN (gradstorm plan prints it)")
    run(host(settings, host_log(settings.claim.role), lambda line: typer.echo(line, err=True)))
