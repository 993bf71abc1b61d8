"""`gradstorm verify RUN`: judge a saved run again, from its history alone."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(verify)


def verify(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Id or folder of a run, or latest.")],
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Judge a saved run again, from its history alone, and compare with the verdict that was given then."""
    from testbed.api import verify as judge_again
    from testbed.run_lines import report_lines

    result = judge_again(run_name)
    if as_json:
        typer.echo(json.dumps(result.document, indent=2, sort_keys=True))
    else:
        before = result.document["saved_verdict"]
        compared = "as it was then" if before == result.verdict else f"then it was {before or 'never given'}"
        typer.echo("\n".join([*report_lines(result), f"Judged again from the history: {compared}."]))
    raise typer.Exit(result.exit_code)
