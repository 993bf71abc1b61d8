"""`gradstorm baseline`: the centralized training that every layer-sharded run is compared with."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated, Any

import typer

from testbed.exit_codes import ExitCode


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("baseline")(baseline)


def baseline(
    folder: Annotated[Path | None, typer.Option("--dir", help="Folder of the committed files.")] = None,
    write: Annotated[
        bool, typer.Option("--write", help="Replace the committed files by what was measured now.")
    ] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Train centrally and compare with the committed curve. Exit code 1: not within 1e-9, or two runs differ."""
    from testbed.api import one_blas_thread
    from testbed.experiments.baseline import document_of, experiments_folder, measure, read_committed
    from testbed.experiments.baseline import write as write_files

    committed = read_committed(experiments_folder(folder))
    with one_blas_thread():
        result, again = measure(committed), measure(committed)
    document = document_of(committed, result, again)
    if write:
        document["written"] = [str(path) for path in write_files(committed, result)]
    typer.echo(json.dumps(document, indent=2) if as_json else "\n".join(_lines(document)))
    good = document["repeatable"] and (write or document["within_tolerance"])
    raise typer.Exit(ExitCode.PASS if good else ExitCode.VIOLATED)


def _lines(document: dict[str, Any]) -> list[str]:
    curve = [f"  step {step:4}  evaluation loss {loss!r}" for step, loss in document["evaluation_curve"]]
    equal = "digit for digit" if document["digit_for_digit"] else f"worst difference {document['worst_difference']}"
    said = "equals" if document["within_tolerance"] else "DIFFERS FROM"
    repeated = "two computations are equal" if document["repeatable"] else "TWO COMPUTATIONS DIFFER"
    return [
        f"centralized baseline, {document['steps']} steps",
        *curve,
        f"  {said} the committed curve: {equal}, tolerance {document['tolerance']}; {repeated} on this machine",
        f"  parameters  sha256 {document['params_sha256']}",
        f"  evaluation artifact  sha256 {document['evaluation_sha256']}, unchanged",
        *(f"  written {path}" for path in document.get("written", [])),
    ]
