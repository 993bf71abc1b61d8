"""`gradstorm doctor`: can this machine run Gradstorm?"""

from __future__ import annotations

import dataclasses
import json
from typing import Annotated

import typer

from testbed.exit_codes import ExitCode

_SYMBOLS = {"ok": "ok     ", "warning": "warning", "failure": "FAILURE", "absent": "absent "}


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command()(doctor)


def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False) -> None:
    """Check this machine: Python, cores, memory, disk, BLAS, ports, gRPC, and what containers want."""
    from testbed.doctor import examine
    from testbed.doctor_containers import ready_for

    findings = examine()
    failed = [finding.name for finding in findings if finding.level == "failure"]
    if as_json:
        document = {"schema": "gradstorm.doctor/1", "findings": [dataclasses.asdict(finding) for finding in findings]}
        typer.echo(json.dumps(document, indent=2))
    else:
        for finding in findings:
            typer.echo(f"{_SYMBOLS[finding.level]}  {finding.name:17} {finding.value}")
            if finding.advice:
                typer.echo(f"{'':9}{'':17} -> {finding.advice}")
        typer.echo(f"Not ready: {', '.join(failed)}." if failed else f"Ready for: {', '.join(ready_for(findings))}.")
    raise typer.Exit(ExitCode.ENVIRONMENT if failed else ExitCode.PASS)
