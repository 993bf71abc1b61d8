"""`gradstorm report RUN`: what a finished run came to, again, and its page anew."""

from __future__ import annotations

import json
from typing import Annotated

import typer


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(report)


def report(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Id or folder of a run, or latest.")] = "latest",
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Print what a run came to, and write its report.html anew. Judges nothing; exit code as the run's."""
    from testbed.report_page.page import write_page
    from testbed.results import saved_result
    from testbed.run_folder import find_run
    from testbed.run_lines import report_lines

    folder = find_run(run_name)
    write_page(folder)
    result = saved_result(folder)
    typer.echo(json.dumps(result.document, indent=2, sort_keys=True) if as_json else "\n".join(report_lines(result)))
    raise typer.Exit(result.exit_code)
