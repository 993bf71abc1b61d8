"""`gradstorm plan`: what to start on which host, so that a run on several of them works as it is pasted."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("plan")(plan)


def plan(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario, or a .yaml file that the last host has.")],
    hosts: Annotated[str, typer.Option(help="Names or addresses of the hosts, with commas; members go in turn.")],
    at: Annotated[str, typer.Option(help="Where coordinator, verifier and driver live; else the first host.")] = "",
    port: Annotated[int, typer.Option(help="First of the ports that hosts listen on, two for each member.")] = 7070,
    strategy: Annotated[str | None, typer.Option(help="ring, ps or shards; else as the scenario prefers.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of the first membership, or shards.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")] = None,
    data: Annotated[
        str | None, typer.Option(help="As of gradstorm run; a file is needed on the last host alone.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Of shards: a text file to train on, on the last host.")] = None,
    model: Annotated[str | None, typer.Option(help="softmax, mlp, or mlp:<hidden units>.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps to commit.")] = None,
    batch: Annotated[int | None, typer.Option(help="Batch size, per worker or global as the scenario has it.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Print the commands for each host, the driver's last. Nothing is started and nothing is sent."""
    from testbed.lan.commands import text_of
    from testbed.lan.planned import planned
    from testbed.planning import RunRequest

    request = RunRequest(
        scenario=scenario, engine="sim", strategy=strategy, workers=workers, seed=seed, data=data, text=text,
        model=model, steps=steps, batch=batch, lr=lr,
    )  # fmt: skip
    found = planned(request, [host.strip() for host in hosts.split(",")], at, port)
    if as_json:
        typer.echo(json.dumps(found.document, indent=2))
    else:
        typer.echo("\n".join(text_of(found.blocks)))
