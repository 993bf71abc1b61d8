"""`gradstorm mutations`: does the verifier catch what it must? Every planted bug, in a whole run each."""

from __future__ import annotations

import json
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.mutations import Row
    from testbed.plants import Plant

EARLIER_STEPS = 8  # of the run that another one goes on from
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
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Plant every known bug and see it caught. Exit code 0: each by the invariant that must catch it."""
    from testbed.mutations import document_of, exit_code, header, line_of, summary
    from testbed.plants import PLANTS, find_plant
    from training.errors import ConfigurationError

    if strategy not in _CHOICES:
        raise ConfigurationError(f"no strategy {strategy!r}; choose one of: {', '.join(_CHOICES)}")
    plants = [find_plant(name) for name in only] if only else list(PLANTS.values())
    if not as_json:
        typer.echo(header())
    rows = []
    for plant in plants:
        for chosen in _strategies(plant, strategy):
            row = _try(plant, engine, chosen)
            rows.append(row)
            typer.echo(line_of(row), err=as_json)
    typer.echo(json.dumps(document_of(rows), indent=2) if as_json else "\n".join(summary(rows)))
    raise typer.Exit(exit_code(rows) if rows else ExitCode.PASS)


def _strategies(plant: Plant, wanted: str) -> tuple[str, ...]:
    if wanted == "both":
        return plant.strategies
    if wanted == "any":
        return plant.strategies[:1]
    return tuple(one for one in plant.strategies if one == wanted)


def _try(plant: Plant, engine: str, strategy: str) -> Row:
    """One run, in a folder that goes with it."""
    from testbed.mutations import row_of
    from training.errors import GradstormError

    began_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="gradstorm-mutation-") as home:
        document: dict[str, Any] | None = None
        trouble = ""
        try:
            document = run_planted(plant, engine, strategy, Path(home) / "run")
        except (GradstormError, OSError) as error:
            trouble = str(error)
        return row_of(plant, engine, strategy, time.monotonic() - began_s, document, trouble)


def run_planted(plant: Plant, engine: str, strategy: str, folder: Path) -> dict[str, Any]:
    """The document that judges this bug: the run's, or that of its saved history."""
    import testbed
    from services.verify import verify
    from training.real_disk import RealDisk

    scenario, earlier = plant.scenario_argument, None
    if plant.resumes:
        first = testbed.run(scenario, engine, strategy=strategy, steps=EARLIER_STEPS, out=folder.with_name("earlier"))
        earlier = str(first.folder)
    result = testbed.run(scenario, engine, strategy=strategy, resume=earlier, plant=(plant.name,), out=folder)
    return verify(RealDisk(), str(result.folder)) if plant.saved else result.document
