"""`gradstorm bench`: how fast this checkout is on this machine, beside peers measured in the same run."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(bench)


def bench(
    quick: Annotated[bool, typer.Option("--quick", help="Fewer sizes and turns: under two minutes.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON list of figures.")] = False,
    only: Annotated[
        list[str] | None,
        typer.Option(help="One family (a wrong name lists them all); may be repeated."),
    ] = None,
    engine: Annotated[str, typer.Option(help="Whose figures: local (with the simulator's) or containers.")] = "local",
) -> None:
    """Measure: steps, recovery, exchange, layer shards and simulator, with medians, spread, peers and goals."""
    from testbed.bench.families import chosen, measure
    from testbed.bench.table import summary, table

    families = chosen(only or [], engine)
    figures = []
    for family, found in measure(families, quick=quick, say=lambda line: typer.echo(line, err=True)):
        figures += found
        if not as_json:
            typer.echo("\n".join(table(family, found)))
    if as_json:
        typer.echo(json.dumps([one.document() for one in figures], indent=1))
    else:
        typer.echo(summary(figures))
