"""`gradstorm scenarios`: which there are, and what is in one."""

from __future__ import annotations

import json
from typing import Annotated, Any

import typer

scenarios_app = typer.Typer(help="List the scenarios, or show one.", invoke_without_command=True)


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.add_typer(scenarios_app, name="scenarios")


@scenarios_app.callback()
def list_scenarios(
    context: typer.Context,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """List name, title, engines and strategies; `fixed` ones end with the same parameters on every engine."""
    if context.invoked_subcommand is not None:
        return
    from testbed.catalog import all_scenarios

    rows = [_row(scenario) for scenario in all_scenarios()]
    if as_json:
        typer.echo(json.dumps({"schema": "gradstorm.scenarios/1", "scenarios": rows}, indent=2))
        return
    for row in rows:
        kind = "fixed" if row["fixed"] else "timed"
        where = f"{','.join(row['engines'])}  {','.join(row['strategies'])}"
        typer.echo(f"{row['name']:28} {kind:6} {where:18} {row['title']}")
    typer.echo(f"{len(rows)} scenarios; `gradstorm scenarios show NAME` prints one as YAML.")


@scenarios_app.command()
def show(name: Annotated[str, typer.Argument(help="Name of a scenario.")]) -> None:
    """Print a scenario as YAML, to be changed and run: `gradstorm scenarios show NAME > mine.yaml`."""
    from chaos.library import scenario_text

    typer.echo(scenario_text(name), nl=False)


def _row(scenario: Any) -> dict[str, Any]:
    return {
        "name": scenario.name,
        "title": scenario.title,
        "engines": list(scenario.engines),
        "strategies": list(scenario.strategies),
        "fixed": scenario.fixed,
        "workers": scenario.training.workers,
        "steps": scenario.training.steps,
        "faults": list(scenario.fault_names),
    }
