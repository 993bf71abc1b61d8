"""`gradstorm experiments`: the committed matrix of layer-sharded training, as JSON, CSV and one table."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.engines.base import ProgressSink
    from testbed.experiments.baseline import Committed
    from testbed.experiments.matrix import Matrix, Row


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("experiments")(experiments)


def experiments(
    engine: Annotated[str, typer.Option(help="Where the roles live: sim, local or containers.")] = "sim",
    only: Annotated[list[str] | None, typer.Option(metavar="ROW", help="Name of a row; may be repeated.")] = None,
    seed: Annotated[
        list[int] | None,
        typer.Option(
            min=0, max=2**63 - 1, help="Another seed than the baseline's; repeated: what several say together."
        ),
    ] = None,
    steps: Annotated[
        int | None,
        typer.Option(min=1, max=1_000_000, help="Other than the baseline's; few for a quick look."),
    ] = None,
    diagnostic: Annotated[
        bool, typer.Option("--diagnostic", help="Measure error feedback, which is unsupported.")
    ] = False,
    folder: Annotated[Path | None, typer.Option("--dir", help="Folder of the committed files.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", help="Where results go; rows that are there are not run again.")
    ] = None,
    in_process: Annotated[
        bool, typer.Option("--in-process", help="Compute in this process: the same digits, sooner, and not verified.")
    ] = False,
    keep: Annotated[bool, typer.Option("--keep", help="Leave the run folders, about 100 MB each.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")] = False,
) -> None:
    """Run the committed experiments, compare with baseline and control. Interrupted, it goes on where it was."""
    from testbed.engines import require_one_machine
    from testbed.experiments.baseline import experiments_folder, read_committed
    from testbed.experiments.matrix import read_matrix
    from testbed.places import require_folder
    from testbed.run_folder import runs_home

    require_one_machine(engine, "experiments run")
    found = experiments_folder(folder)
    committed, matrix = _shortened(read_committed(found), steps), read_matrix(found)
    if diagnostic:
        document = _diagnostic(committed, matrix, only or [])
        typer.echo(json.dumps(document, indent=2) if as_json else "\n".join(_diagnostic_lines(document)))
        return
    home = out or runs_home() / f"experiments-{engine}"
    require_folder(home, "the folder of the results", "--out or GRADSTORM_HOME")
    documents = {}
    for one in seed or [committed.baseline.config.seed]:
        runner = _Runner(_home(home, one, seed), engine, keep, in_process)
        try:
            documents[one] = _run(_seeded(committed, one), matrix, only or [], runner)
        except KeyboardInterrupt:
            _say(f"interrupted; rows that are done are in {home}, and the same command goes on from there")
            raise typer.Exit(ExitCode.INTERRUPTED) from None
    document, lines = _told(documents, home)
    typer.echo(json.dumps(document, indent=2) if as_json else "\n".join(lines))
    raise typer.Exit(max(one["exit_code"] for one in documents.values()))


def _home(home: Path, seed: int, asked: list[int] | None) -> Path:
    return home / f"seed-{seed}" if asked else home


def _seeded(committed: Committed, seed: int) -> Committed:
    """The same training from another seed: initial parameters, batches and delays are drawn anew."""
    from dataclasses import replace

    config = replace(committed.baseline.config, seed=seed)
    return replace(committed, baseline=replace(committed.baseline, config=config))


def _told(documents: dict[int, dict[str, Any]], home: Path) -> tuple[dict[str, Any], list[str]]:
    """The document and the lines of one seed, or of several together (also written to seeds.json and seeds.csv)."""
    from testbed.experiments import seeds, summary
    from testbed.run_folder import write_json, write_whole

    if len(documents) == 1:
        (document,) = documents.values()
        return document, [*summary.table_of(document), f"summary.json and summary.csv are below {home}"]
    together = seeds.document_of(documents)
    write_json(home / "seeds.json", together)
    write_whole(home / "seeds.csv", seeds.csv_of(together).encode())
    return together, [*seeds.table_of(together), f"seeds.json and seeds.csv are in {home}"]


class _Runner:
    def __init__(self, home: Path, engine: str, keep: bool, in_process: bool) -> None:
        from testbed.experiments.one_process import IN_PROCESS
        from testbed.experiments.rows import RowRunner

        self.rows = RowRunner(home, IN_PROCESS if in_process else engine, keep)
        self._in_process = in_process

    def able(self, matrix: Matrix, only: list[str], committed: Committed) -> tuple[list[Row], list[dict[str, str]]]:
        """The rows that can be run here, and those left out, with the reason; who names one is told by an error."""
        from testbed.experiments.matrix import scenario_of
        from training.errors import ConfigurationError

        wanted, left_out = [], []
        for row in matrix.named(only):
            scenario = scenario_of(row, matrix, committed.baseline, committed.baseline.config.steps)
            if not (why := self.rows.cannot(row, scenario)):
                wanted.append(row)
            elif only:
                raise ConfigurationError(f"row {row.name} cannot be run: {why}")
            else:
                left_out.append({"name": row.name, "why": why})
        return wanted, left_out

    def run(self, row: Row, matrix: Matrix, committed: Committed, head: str) -> tuple[dict[str, Any], bool]:
        """The row's document, and whether it was there already."""
        from testbed.experiments.matrix import scenario_of

        steps = committed.baseline.config.steps
        scenario = scenario_of(row, matrix, committed.baseline, steps)
        if self._in_process:
            return self.rows.compute(row, scenario, committed, matrix.shards)
        return self.rows.run(row.name, scenario, _sink(head, steps))


def _shortened(committed: Committed, steps: int | None) -> Committed:
    from dataclasses import replace

    if steps is None:
        return committed
    config = replace(committed.baseline.config, steps=steps)
    return replace(committed, baseline=replace(committed.baseline, config=config))


def _run(committed: Committed, matrix: Matrix, only: list[str], runner: _Runner) -> dict[str, Any]:
    from testbed.api import one_blas_thread
    from testbed.experiments import baseline as central
    from testbed.experiments.summary import csv_of, document_of
    from testbed.run_folder import write_json, write_whole

    wanted, left_out = runner.able(matrix, only, committed)
    runner.rows.home.mkdir(parents=True, exist_ok=True)
    with one_blas_thread():
        measured = central.document_of(committed, central.measure(committed))
    _say(f"baseline: evaluation loss {measured['final_eval_loss']!r} after {measured['steps']} steps")
    for one in left_out:
        _say(f"{one['name']} is left out: {one['why']}")
    rows = []
    for number, row in enumerate(wanted, start=1):
        head = f"{number}/{len(wanted)} {row.name}"
        done, was_there = runner.run(row, matrix, committed, head)
        how = "kept from before" if was_there else "run"
        _say(f"{head}: {done['verdict']}, evaluation loss {done['final_eval_loss']!r} ({how})")
        rows.append(done)
    document = document_of(runner.rows.engine, rows, measured)
    document["left_out"] = left_out
    document["exit_code"] = int(_exit_code(document))
    write_json(runner.rows.home / "summary.json", document)
    write_whole(runner.rows.home / "summary.csv", csv_of(document).encode())
    return document


def _exit_code(document: dict[str, Any]) -> ExitCode:
    from testbed.experiments.summary import must_hold

    verdicts = {row["verdict"] for row in document["rows"]}
    if "violated" in verdicts or not must_hold(document):
        return ExitCode.VIOLATED
    return ExitCode.UNKNOWN if verdicts - {"pass"} else ExitCode.PASS


def _sink(head: str, steps: int) -> Callable[[], ProgressSink]:
    from testbed.experiments.progress import RowProgress

    return lambda: RowProgress(head, steps)


def _diagnostic(committed: Committed, matrix: Matrix, only: list[str]) -> dict[str, Any]:
    from testbed.api import one_blas_thread
    from testbed.experiments import baseline as central
    from testbed.experiments.diagnostic import measure, row
    from training.errors import ConfigurationError

    wanted = [one for one in matrix.diagnostic if not only or one.name in only]
    if not wanted:
        raise ConfigurationError(f"the diagnostic has {', '.join(one.name for one in matrix.diagnostic)}")
    with one_blas_thread():
        loss = central.measure(committed).final_evaluation_loss
        rows = []
        for one in wanted:
            _say(f"{one.name}: measuring with and without error feedback")
            with_it, without = (
                measure(committed.baseline, committed.corpus, matrix.shards, one.keep_percent, one.bits, feedback)
                for feedback in (True, False)
            )
            rows.append(row(one.name, with_it, without, loss))
    return {"schema": "gradstorm.diagnostic/1", "baseline": {"final_eval_loss": loss}, "rows": rows}


def _diagnostic_lines(document: dict[str, Any]) -> list[str]:
    lines = [
        "| name | final_eval_loss | without feedback | delta_to_baseline | payload_bytes | |",
        "|---|---|---|---|---|---|",
    ]
    for row in document["rows"]:
        numbers = [f"{row[key]:.6f}" for key in ("final_eval_loss", "without_feedback", "delta_to_baseline")]
        lines.append(f"| {row['name']} | {' | '.join(numbers)} | {row['payload_bytes']} | unsupported |")
    return [*lines, document["rows"][0]["why"]]


def _say(line: str) -> None:
    typer.echo(line, err=True)
