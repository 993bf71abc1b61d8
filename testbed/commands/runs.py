"""`gradstorm runs list` and `gradstorm runs prune`: what earlier runs left, and removing it."""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

runs_app = typer.Typer(help="List and remove the folders of earlier runs.", no_args_is_help=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(runs_app, name="runs")


@runs_app.command("list")
def list_command(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """List every run under ./runs (or GRADSTORM_HOME), oldest first."""
    from testbed.run_folder import list_runs, runs_home

    found = list_runs()
    if as_json:
        document = {"schema": "gradstorm.runs/1", "runs": [dataclasses.asdict(summary) for summary in found]}
        typer.echo(json.dumps(document, indent=2))
        return
    for run in found:
        size = f"{run.size_bytes / 1e6:.1f} MB"
        typer.echo(f"{run.started_at[:19]:19}  {run.verdict:10}  {run.engine:6} {run.strategy:4} {size:>9}  {run.name}")
    typer.echo(f"{len(found)} runs in {runs_home()}.")


@runs_app.command("prune")
def prune_command(
    keep: Annotated[int, typer.Option(min=0, help="How many of the newest finished runs stay.")] = 10,
) -> None:
    """Remove all but the newest runs. A run that goes on at this moment stays."""
    from testbed.run_folder import prune, runs_home

    removed = prune(keep)
    for run in removed:
        typer.echo(f"removed {run.name}")
    typer.echo(f"{len(removed)} runs removed from {runs_home()}.")
