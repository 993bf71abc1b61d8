"""`gradstorm mutations`: does the verifier catch what it must? Every planted bug, in a whole run each."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, get_args

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.mutations import Row
    from testbed.plants import Plant

_CHOICES = ("any", "both", "ring", "ps", "shards")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("mutations")(mutations)


def mutations(
    engine: Annotated[str, typer.Option(help="Where the roles live: sim or local.")] = "sim",
    strategy: Annotated[
        str, typer.Option(help="any (the first in which a bug shows), both, ring, ps or shards.")
    ] = "any",
    only: Annotated[list[str] | None, typer.Option(help="Name of a planted bug; may be repeated.")] = None,
    runs_to_find: Annotated[
        int, typer.Option(min=0, help="Also look for each bug in so many random schedules at most; see sweep.")
    ] = 0,
    as_markdown: Annotated[bool, typer.Option("--markdown", help="Print the table as Markdown.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Plant every known bug and see it caught. Exit code 0: each by the invariant that must catch it."""
    from testbed.mutations import document_of, exit_code, header, line_of, markdown, summary
    from testbed.plants import PLANTS, find_plant
    from training.errors import ConfigurationError

    if strategy not in _CHOICES:
        raise ConfigurationError(f"no strategy {strategy!r}; choose one of: {', '.join(_CHOICES)}")
    if engine not in ("sim", "local"):
        raise ConfigurationError(f"no mutations on engine {engine!r}; choose sim or local")
    plants = [find_plant(name) for name in only] if only else list(PLANTS.values())
    aside = as_json or as_markdown
    if not aside:
        typer.echo(header())
    rows = []
    for plant in plants:
        for chosen in _strategies(plant, strategy):
            row = _found(_try(plant, engine, chosen), plant, runs_to_find)
            rows.append(row)
            typer.echo(line_of(row), err=aside)
    if aside:
        typer.echo(json.dumps(document_of(rows), indent=2) if as_json else "\n".join(markdown(rows)))
    typer.echo("\n".join(summary(rows)), err=aside)
    raise typer.Exit(exit_code(rows) if rows else ExitCode.PASS)


def _strategies(plant: Plant, wanted: str) -> tuple[str, ...]:
    if wanted == "both":
        return plant.strategies
    if wanted == "any":
        return plant.strategies[:1]
    return tuple(one for one in plant.strategies if one == wanted)


def _found(row: Row, plant: Plant, runs_max: int) -> Row:
    """With how many random schedules it takes to find the bug, where those can show it."""
    from dataclasses import replace

    from services.config import Strategy
    from testbed.finding import find
    from testbed.sweeping import SweepPlan

    strategies = tuple(one for one in get_args(Strategy) if one in plant.strategies)
    if not runs_max or not strategies:
        return row
    return replace(row, runs_max=runs_max, runs_to_find=find(plant, SweepPlan(runs_max, strategies=strategies)).runs)


def _try(plant: Plant, engine: str, strategy: str) -> Row:
    """One run, in a folder that goes with it."""
    from testbed.finding import run_planted
    from testbed.mutations import row_of
    from training.errors import GradstormError

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gradstorm-mutation-") as home:
        document: dict[str, Any] | None = None
        trouble = ""
        try:
            document = run_planted(plant, plant.scenario_argument, engine, strategy, Path(home))
        except (GradstormError, OSError) as error:
            trouble = str(error)
        return row_of(plant, engine, strategy, time.monotonic() - began_s, document, trouble)
