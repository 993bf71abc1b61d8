"""`gradstorm matrix`: every scenario under both strategies on one engine, as a table."""

from __future__ import annotations

import json
from dataclasses import asdict, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.matrix import Row

_STRATEGIES = ("both", "ring", "ps", "alternate")


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("matrix")(matrix)


def matrix(
    scenarios: Annotated[
        list[str] | None, typer.Argument(help="Names or .yaml files; else every data-parallel one.")
    ] = None,
    engine: Annotated[str, typer.Option(help="Where the roles live: sim, local or containers.")] = "containers",
    strategy: Annotated[str, typer.Option(help="both, ring, ps, or alternate: the two in turn.")] = "both",
    out: Annotated[Path | None, typer.Option("--out", help="Folder for runs that did not go well.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Run scenarios x strategies; where the result is fixed, compare its bits with the simulator's."""
    from testbed.engines import require_one_machine
    from testbed.matrix import cells, run_cells
    from testbed.places import require_folder
    from testbed.run_folder import runs_home
    from training.errors import ConfigurationError

    if strategy not in _STRATEGIES:
        raise ConfigurationError(f"no strategy {strategy!r}; choose one of: {', '.join(_STRATEGIES)}")
    require_one_machine(engine, "the matrix runs")
    wanted = cells(scenarios or [], engine, strategy)
    folder = out or runs_home() / f"matrix-{engine}-{datetime.now(UTC):%Y%m%d-%H%M%S}"
    require_folder(folder, "the folder of the runs", "--out or GRADSTORM_HOME")
    rows: list[Row] = []
    if not as_json:
        typer.echo(_HEAD)
    try:
        for row in run_cells(wanted, engine, folder):
            rows.append(row)
            typer.echo("\n".join(_lines(row)), err=as_json)
    except KeyboardInterrupt:
        left = f"; what there is of the next one is below {folder}" if folder.is_dir() and any(folder.iterdir()) else ""
        typer.echo(f"interrupted after {len(rows)} of {len(wanted)} runs{left}", err=True)
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    finally:
        if folder.is_dir() and not any(folder.iterdir()):
            folder.rmdir()
    if as_json:
        typer.echo(json.dumps(_document(engine, rows), indent=2, sort_keys=True))
    else:
        typer.echo(_summary(engine, rows))
    raise typer.Exit(_exit_code(rows))


_HEAD = f"{'scenario':30} {'strategy':8} {'verdict':9} {'steps':>9} {'s':>5}  {'parameters':12} beside sim"


def _lines(row: Row) -> list[str]:
    steps = f"{row.steps_checked}/{row.steps_committed}"
    beside = row.equality or ("not fixed" if row.params_sha256 and not row.fixed else "-")
    head = f"{row.scenario:30} {row.strategy:8} {row.verdict:9} {steps:>9} {row.seconds:5.1f}  "
    lines = [head + f"{row.params_sha256[:12] or '-':12} {beside}", *(f"    {effect}" for effect in row.effects)]
    if not row.good:
        lines += [f"    because: {reason}" for reason in row.why[:5]] + [f"    look at: {row.folder}"]
    return lines


def _summary(engine: str, rows: list[Row]) -> str:
    good = sum(row.good for row in rows)
    compared = sum(bool(row.expected_sha256) for row in rows)
    equal = sum(row.equality == "equal" for row in rows)
    seconds = sum(row.seconds for row in rows)
    ending = "all as they must be" if good == len(rows) else f"{len(rows) - good} are not as they must be"
    beside = f"{equal} of {compared} with a fixed result have the simulator's parameters, bit for bit"
    if not compared:
        beside = "no result to compare with the simulator's" if engine != "sim" else "the simulator's own results"
    return f"{len(rows)} runs on {engine} in {seconds:.0f} s: {ending}; {beside}."


def _document(engine: str, rows: list[Row]) -> dict[str, Any]:
    cells = [{**asdict(replace(row, error=None)), "equality": row.equality, "good": row.good} for row in rows]
    return {"schema": "gradstorm.matrix/1", "engine": engine, "good": all(row.good for row in rows), "rows": cells}


def _exit_code(rows: list[Row]) -> ExitCode:
    if any(row.verdict == "violated" or row.equality == "differs" for row in rows):
        return ExitCode.VIOLATED
    return ExitCode.PASS if all(row.good for row in rows) else ExitCode.UNKNOWN
