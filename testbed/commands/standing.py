"""`gradstorm up | status | inject | heal | logs | down | clean`: containers that stand, and are broken by hand."""

from __future__ import annotations

import json
import os
import time
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.exit_codes import ExitCode

_Engine = Annotated[str, typer.Option("--engine", help="Only containers stand.")]
_Name = Annotated[str, typer.Option("--name", metavar="RUN", help="Which testbed, where several are up: id or folder.")]
_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command()(up)
    app.command()(status)
    app.command(context_settings={"ignore_unknown_options": True})(inject)
    app.command()(heal)
    app.command()(logs)
    app.command()(down)
    app.command()(clean)


def up(
    workers: Annotated[int, typer.Option(min=1, max=64, help="How many workers, or shards.")] = 4,
    strategy: Annotated[str, typer.Option(help="ring, ps or shards.")] = "ring",
    pace_ms: Annotated[float, typer.Option(help="Pause before every step: a testbed stands for hours.")] = 500.0,
    memory: Annotated[str, typer.Option(help="Limit of each role, such as 512m.")] = "",
    cpus: Annotated[str, typer.Option(help="Limit of each role in cores, such as 0.5.")] = "",
    out: Annotated[Path | None, typer.Option(metavar="DIR", help="Folder of the run; must not exist.")] = None,
    engine: _Engine = "containers",
) -> None:
    """Bring up a testbed in containers that trains, slowly, until `down`; wait until every role is healthy."""
    from testbed.containers.limits import CPUS_VARIABLE, MEMORY_VARIABLE, read_limits
    from testbed.hand.bring_up import bring_up

    _require_containers(engine)
    os.environ.update({name: text for name, text in ((MEMORY_VARIABLE, memory), (CPUS_VARIABLE, cpus)) if text})
    read_limits(os.environ)
    began_s = time.monotonic()
    request = {"workers": workers, "strategy": strategy, "pace_ms": pace_ms, "out": str(out.absolute()) if out else ""}
    standing = bring_up(request, _say)
    member = "shard" if strategy == "shards" else "worker"
    typer.echo(f"up after {time.monotonic() - began_s:.1f} s: {standing.run_id}, {workers} {member}s, {strategy}")
    typer.echo(f"  compose project {standing.project}, Docker at {standing.docker}")
    typer.echo(f"  run folder      {standing.folder}")
    named = f" --name {standing.folder}" if out else ""  # elsewhere than all others, so it is not found by itself
    commands = ("status", f"inject {member}-1→{member}-2 latency 100ms", "heal", "down")
    typer.echo(f"  now: {'; '.join(f'gradstorm {command}{named}' for command in commands)}")


def status(name: _Name = "", as_json: _AsJson = False) -> None:
    """Show what a standing testbed does: step, generation, members, faults, and the delay of every link."""
    from testbed.hand.control import ask, find_standing
    from testbed.hand.status_lines import status_lines

    answer = ask(find_standing(name), {"do": "status"})
    if as_json:
        typer.echo(json.dumps({"schema": "gradstorm.status/1", **answer}, indent=2, sort_keys=True))
    else:
        typer.echo("\n".join(status_lines(answer)))


def inject(
    words: Annotated[
        list[str], typer.Argument(metavar="LINK|ROLE FAULT …", help="worker-1→worker-2 latency 100ms [for 5s]")
    ],
    name: _Name = "",
    as_json: _AsJson = False,
) -> None:
    """Put a fault on a standing testbed, and wait until it is seen to act.

    On a link (a→b, or a↔b for both directions; a->b and a<->b do as well): latency 100ms, jitter 50ms,
    bandwidth 64KiB/s, partition, reset, flap. On a role: kill, pause. `for 5s` ends it by itself.
    `worker-5 add` starts one more worker; it takes part as soon as it is ready.
    """
    from testbed.hand.control import ask, find_standing

    answer = ask(find_standing(name), {"do": "inject", "words": words})
    _tell(answer, as_json, str(answer["told"]) or f"fault {answer['fault']} {answer['state']}")
    if not answer["acted"] or answer["state"] == "missed":
        _say(f"fault {answer['fault']} was not seen to act{': ' if answer['why'] else ''}{answer['why']}")
        raise typer.Exit(ExitCode.UNKNOWN)


def heal(name: _Name = "", as_json: _AsJson = False) -> None:
    """Take off every fault of a standing testbed and start again who is dead; wait until that is so."""
    from testbed.hand.control import ask, find_standing
    from testbed.hand.status_lines import heal_line

    answer = ask(find_standing(name), {"do": "heal"})
    _tell(answer, as_json, heal_line(answer))
    if not answer["healed"]:
        raise typer.Exit(ExitCode.UNKNOWN)


def logs(
    role: Annotated[str, typer.Argument(help="Only this role's.")] = "",
    lines: Annotated[int, typer.Option(help="The last so many of each.")] = 10,
    name: _Name = "",
) -> None:
    """Print the ends of the logs of a standing testbed's roles."""
    from testbed.hand.control import find_standing
    from testbed.hand.status_lines import log_lines

    for line in log_lines(Path(find_standing(name).folder), role, lines):
        typer.echo(line)


def down(name: _Name = "", as_json: _AsJson = False) -> None:
    """Take a standing testbed down, and say what was proved of it; nothing of it is left but its run folder."""
    from testbed.hand.bring_up import take_down
    from testbed.hand.control import find_standing
    from testbed.hand.status_lines import down_lines
    from testbed.run_folder import RunFolder

    standing = find_standing(name)
    take_down(standing)
    document = RunFolder(Path(standing.folder)).verdict()
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    else:
        typer.echo("\n".join(down_lines(standing, document)))
    if document.get("verdict") == "violated":
        raise typer.Exit(ExitCode.VIOLATED)


def clean(
    everything: Annotated[bool, typer.Option("--all", help="Also what a living run or testbed of yours uses.")] = False,
) -> None:
    """Remove what Gradstorm left on this Docker daemon: containers and networks of yours that nobody answers for."""
    from testbed.containers.docker_adapter import Docker
    from testbed.containers.labels import this_owner
    from testbed.containers.sweep import left_over_of, of_owner, sweep

    docker = Docker.connect(os.environ, timeout_s=60.0)
    try:
        _say(docker.target_line)
        swept = sweep(docker, of_owner(this_owner()) if everything else left_over_of(this_owner(), time.time()))
        kept = sorted({state.whose.run_id for state in docker.containers(owner=this_owner()) if state.whose})
    finally:
        docker.close()
    typer.echo("\n".join(swept.lines()) or "nothing was left over")
    if kept:
        typer.echo(f"still in use, left alone (--all removes it too): {', '.join(kept)}")


def _require_containers(engine: str) -> None:
    from training.errors import ConfigurationError

    if engine != "containers":
        raise ConfigurationError(f"a testbed stands on --engine containers only, not on {engine}")


def _tell(answer: dict[str, Any], as_json: bool, line: str) -> None:
    typer.echo(json.dumps(answer, indent=2, sort_keys=True) if as_json else line)


def _say(line: str) -> None:
    typer.echo(line, err=True)
