"""`gradstorm run` and `gradstorm replay`: one run, from the command line to the verdict."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.engines.base import ProgressSink
    from testbed.lan.settings import LanSettings
    from testbed.results import RunResult
    from testbed.run_folder import RunFolder

_AsJson = Annotated[bool, typer.Option("--json", help="Print one JSON document on standard output.")]
_Out = Annotated[Path | None, typer.Option("--out", help="Folder of the run; it must not exist.")]


def add_to(app: typer.Typer) -> None:
    """Register the commands."""
    app.command("run")(run)
    app.command("replay")(replay)


def run(
    scenario: Annotated[str, typer.Argument(help="Name of a scenario, or a .yaml file.")],
    engine: Annotated[str, typer.Option(help="Where the roles live: sim, local, containers or lan.")] = "sim",
    strategy: Annotated[str | None, typer.Option(help="ring, ps or shards; else as the scenario prefers.")] = None,
    workers: Annotated[int | None, typer.Option(help="Workers of the first membership, or shards.")] = None,
    seed: Annotated[int | None, typer.Option(help="Seed of everything that is drawn.")] = None,
    data: Annotated[
        str | None, typer.Option(help="blobs, digits, a .csv or .npz file; of shards: sample or synthetic.")
    ] = None,
    text: Annotated[str | None, typer.Option(help="Of shards: a text file to train on, in UTF-8.")] = None,
    model: Annotated[str | None, typer.Option(help="softmax, mlp, or mlp:<hidden units>.")] = None,
    steps: Annotated[int | None, typer.Option(help="Steps to commit.")] = None,
    batch: Annotated[int | None, typer.Option(help="Batch size, per worker or global as the scenario has it.")] = None,
    lr: Annotated[float | None, typer.Option(help="Learning rate.")] = None,
    resume: Annotated[str | None, typer.Option(help="Go on from an earlier run: its id or folder, or latest.")] = None,
    plant: Annotated[list[str] | None, typer.Option(help="Plant a bug in the running code; may be repeated.")] = None,
    attach: Annotated[
        str | None, typer.Option(help="Of lan: a file, or ROLE=HOST:PORT,…; gradstorm plan writes it.")
    ] = None,
    at: Annotated[str, typer.Option(help="Of lan: the address of this machine that the hosts reach.")] = "",
    run_id: Annotated[str, typer.Option(help="Of lan: the id that the hosts were told.")] = "",
    out: _Out = None,
    keep: Annotated[bool, typer.Option("--keep", help="In containers: a run that failed stands until Ctrl-C.")] = False,
    as_json: _AsJson = False,
) -> None:
    """Run a scenario and judge it. Exit code 0: everything was checked and holds."""
    from testbed.planning import RunRequest, prepare
    from training.errors import ConfigurationError

    if attach is not None and engine != "lan":
        raise ConfigurationError(f"--attach goes together with --engine lan, not with {engine}")
    lan = None if attach is None else _lan(attach, at, run_id)
    request = RunRequest(
        scenario=scenario,
        engine=engine,
        strategy=strategy,
        workers=workers,
        seed=seed,
        data=data,
        text=text,
        model=model,
        steps=steps,
        batch=batch,
        lr=lr,
        resume=resume,
        plants=tuple(plant or ()),
        out=out,
        lan=lan,
    )
    _carry_out(lambda: _kept(prepare(request)) if keep else prepare(request), as_json)


def _kept(prepared: Any) -> Any:
    from testbed.engines.kept import KeepingEngine
    from training.errors import ConfigurationError

    if prepared.engine.name != "containers":
        raise ConfigurationError(f"--keep is for --engine containers, not for {prepared.engine.name}")
    return dataclasses.replace(prepared, engine=KeepingEngine())


def _lan(attach: str, at: str, run_id: str) -> LanSettings:
    from services.shell.options import TOKEN_VARIABLE
    from testbed.lan.settings import read_settings

    return read_settings(attach, os.environ.get(TOKEN_VARIABLE, ""), at, run_id)


def replay(
    run_name: Annotated[str, typer.Argument(metavar="RUN", help="Id or folder of an earlier run, or latest.")],
    out: _Out = None,
    as_json: _AsJson = False,
) -> None:
    """Run the same configuration, data, schedule and seed in the simulator, and compare: exit code 1 if they differ."""
    from testbed.planning import prepare_replay
    from testbed.run_folder import find_run

    earlier = find_run(run_name)
    _carry_out(lambda: prepare_replay(earlier, out), as_json, lambda result: _comparison(earlier, result))


def _carry_out(
    prepare: Callable[[], Any], as_json: bool, compare: Callable[[RunResult], dict[str, Any]] | None = None
) -> None:
    from testbed.api import carry_out
    from testbed.live import make_sink
    from testbed.results import batch_note
    from testbed.run_folder import left_of
    from testbed.run_lines import report_lines

    prepared = prepare()
    _say(f"run {prepared.plan.config.run_id} in {prepared.folder_path}")
    if note := batch_note(prepared.plan.config):
        _say(f"batch: {note}")
    try:
        with _neighbours_resting(prepared), make_sink(_picture(prepared)) as sink:
            result = carry_out(prepared, _as_sink(sink))
    except KeyboardInterrupt:
        _say(f"interrupted; no process is left, {left_of(prepared.folder_path)}")
        raise typer.Exit(ExitCode.INTERRUPTED) from None
    document = result.document | (compare(result) if compare else {})
    if as_json:
        typer.echo(json.dumps(document, indent=2, sort_keys=True))
    else:
        typer.echo("\n".join([*report_lines(result), *_compared(document)]))
    raise typer.Exit(document["exit_code"])


@contextlib.contextmanager
def _neighbours_resting(prepared: Any) -> Iterator[None]:
    """A run in containers has the machine for itself: testbeds that stand open no step meanwhile."""
    if prepared.engine.name != "containers":
        yield
        return
    from testbed.hand.resting import at_rest

    with at_rest() as names:
        for name in names:
            _say(f"testbed {name} rests meanwhile")
        yield


def _picture(prepared: Any) -> Any:
    from services.any_config import SHARDS
    from testbed.run_state import RunState

    config = prepared.plan.config
    return RunState(steps=config.steps, sharded=config.strategy == SHARDS)


def _comparison(earlier: RunFolder, result: RunResult) -> dict[str, Any]:
    """Whether the replay is the earlier run again: its history byte for byte (of the simulator), its parameters.

    Where they could only differ, they are not compared, and it is said why. What differs outweighs a pass.
    """
    before, manifest = earlier.verdict(), earlier.manifest()
    same: dict[str, bool] = {}
    why = _incomparable(manifest, before, result.document)
    if not why:
        same["params_sha256"] = before["params_sha256"] == result.document["params_sha256"]
    if before and manifest["engine"] == "sim":
        names = ("history.jsonl", "history.arrays")
        same["history"] = all(_bytes(earlier.path / name) == _bytes(result.folder / name) for name in names)
    code = result.exit_code if all(same.values()) else ExitCode.VIOLATED
    return {"replay_of": str(earlier.path), "same": same, "not_compared": why, "exit_code": int(code)}


def _incomparable(manifest: dict[str, Any], before: dict[str, Any], after: dict[str, Any]) -> str:
    """Why the parameters of an earlier run need not be those of its replay; empty when they must be."""
    if not before:
        return "that run was interrupted, or goes on: it has no verdict, so there is nothing to compare"
    if before["params_sha256"] is None or before["final_step"] != after["final_step"]:
        reached = (f"step {one['final_step']}" if one["final_step"] else "no saved step" for one in (before, after))
        return "that run ended at {}, the replay at {}, so there is nothing to compare".format(*reached)
    if manifest["engine"] != "sim" and not manifest["scenario_document"]["fixed"]:
        return "the scenario follows a clock, so its parameters are others each time"
    if manifest["numerics"] != after["numerics"]["driver"] or len(before["numerics"]["members"]) > 1:
        return "that run was computed on machines that round otherwise than this one"
    return ""


def _compared(document: dict[str, Any]) -> list[str]:
    if "same" not in document:
        return []
    words = [f"{what} {'identical' if same else 'DIFFERS'}" for what, same in document["same"].items()]
    words += [f"parameters not compared: {why}" for why in [document["not_compared"]] if why]
    return [f"Compared with {document['replay_of']}: {', '.join(words)}."]


def _bytes(path: Path) -> bytes | None:
    return path.read_bytes() if path.exists() else None


def _as_sink(sink: ProgressSink) -> ProgressSink:
    return sink


def _say(line: str) -> None:
    typer.echo(line, err=True)
