"""`gradstorm soak`: for minutes or hours workers die, stop and are cut off, and nothing may be lost or grow."""

from __future__ import annotations

import json
import shlex
import time
from dataclasses import asdict
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.soaking import Soaked

_STRATEGIES = ("ring", "ps")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("soak")(soak)


def soak(
    minutes: Annotated[float, typer.Option(min=0.1, help="About how long; a first, short run tells the pace.")] = 2.0,
    faults: Annotated[
        int | None,
        typer.Option(min=1, help="How often instead, two deaths at once counted as one: the same schedule again."),
    ] = None,
    seed: Annotated[int, typer.Option(min=0, max=2**63 - 1, help="Seed of the schedule.")] = 1,
    engine: Annotated[str, typer.Option(help="Where the roles live: sim, local or containers.")] = "containers",
    strategy: Annotated[str, typer.Option(help="ring or ps.")] = "ring",
    out: Annotated[Path | None, typer.Option("--out", help="Folder of the run; it must not exist.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Disturb one long run from a seed. Exit code 0: no violation, all samples accounted for, nothing grows."""
    from chaos.soaking import FAULTS_MAX
    from testbed.engines import require_one_machine
    from testbed.run_folder import folder_for, left_of
    from testbed.soaking import pace_s, soaked
    from training.errors import ConfigurationError

    def say(text: str) -> None:
        typer.echo(text, err=True)

    require_one_machine(engine, "a soak runs")
    if strategy not in _STRATEGIES:
        raise ConfigurationError(f"no soak of strategy {strategy!r}; choose {' or '.join(_STRATEGIES)}")
    folder = folder_for(f"soak-{engine}-{strategy}-{seed}-{datetime.now(UTC):%Y%m%d-%H%M%S}", out)
    if faults is None:
        each_s = pace_s(seed, engine, strategy, say)
        faults = max(1, round(min(FAULTS_MAX, minutes * 60.0 / each_s)))
        most = ", and one run holds no more" if faults == FAULTS_MAX else ""
        say(f"one fault every {each_s:.2g} s: {faults} of them are {faults * each_s / 60.0:.3g} minutes{most}")
    parts = ["gradstorm", "soak", "--faults", str(faults), "--seed", str(seed)]
    command = shlex.join([*parts, "--engine", engine, "--strategy", strategy])
    typer.echo(command, err=as_json)
    began_s = time.monotonic()
    try:
        result = soaked(seed, faults, engine, strategy, folder, say)
    except KeyboardInterrupt:
        say(f"interrupted; no process is left, {left_of(folder)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    seconds = time.monotonic() - began_s
    if as_json:
        typer.echo(json.dumps(_document(command, result, seconds), indent=2, sort_keys=True))
    else:
        typer.echo("\n".join(_lines(result, seconds)))
    raise typer.Exit(_exit_code(result))


def _lines(result: Soaked, seconds: float) -> list[str]:
    document = result.document
    samples = document["samples"]
    lines = [
        f"verdict     {document['verdict']}",
        f"steps       {document['steps_committed']} committed, {document['steps_checked']} checked",
        f"faults      {result.undone} of {result.planned} acted and were undone: {result.kinds}",
        f"samples     {samples['committed']} committed, {samples['lost']} lost, {samples['repeated']} repeated",
        f"time        {seconds:.0f} s; the longest between two commits {result.longest_pause_s:.1f} s",
        f"parameters  {document['params_sha256'][:12] if document['params_sha256'] else '-'} {result.equality}",
    ]
    for one in result.growth:
        (rss, rss_after), (fds, fds_after) = one.rss_mib, one.descriptors
        grows = "  GROWS" if one.grows else ""
        lines.append(f"{one.role:11} {rss:.1f} -> {rss_after:.1f} MiB, {fds:g} -> {fds_after:g} descriptors{grows}")
    lines += [f"because     {reason}" for reason in result.complaints]
    ending = "nothing was lost, nothing grows" if not result.complaints else "it did not go as it must"
    return [*lines, f"{result.planned} faults in {seconds / 60.0:.1f} minutes: {ending}; see {document['run_dir']}"]


def _document(command: str, result: Soaked, seconds: float) -> dict[str, Any]:
    growth = [{**asdict(one), "grows": one.grows} for one in result.growth]
    return {
        "schema": "gradstorm.soak/1",
        "command": command,
        "seconds": round(seconds, 1),
        "faults_planned": result.planned,
        "faults_undone": result.undone,
        "longest_pause_s": round(result.longest_pause_s, 3),
        "equality": result.equality,
        "growth": growth,
        "complaints": list(result.complaints),
        "run": result.document,
    }


def _exit_code(result: Soaked) -> ExitCode:
    if result.document["exit_code"]:
        return ExitCode(result.document["exit_code"])
    return ExitCode.VIOLATED if result.complaints else ExitCode.PASS
