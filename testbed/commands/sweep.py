"""`gradstorm sweep`: random schedules, each judged; what goes wrong is made small and written down."""

from __future__ import annotations

import json
import os
import re
import shlex
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from testbed.exit_codes import ExitCode

if TYPE_CHECKING:
    from testbed.sweeping import Outcome, Pool, Summary, SweepPlan

SHRUNK_MAX = 3  # of a sweep in which much goes wrong only the first few are made small
_STRATEGIES = {"both": ("ring", "ps"), "ring": ("ring",), "ps": ("ps",)}
_PROGRESS_S = 5.0
_PROCESSES_MAX = 4


def add_to(app: typer.Typer) -> None:
    """Register the command."""
    app.command("sweep")(sweep)


def sweep(
    runs: Annotated[
        int, typer.Option(min=1, help="How many runs; with --runs-to-find, at most so many per bug.")
    ] = 100,
    workers: Annotated[str, typer.Option(help="Workers of the first cast, for example 3-8.")] = "3-6",
    seed: Annotated[int, typer.Option(min=0, help="Seed of the first schedule.")] = 0,
    strategy: Annotated[str, typer.Option(help="both, ring or ps.")] = "both",
    plant: Annotated[list[str] | None, typer.Option(help="Plant a bug in the running code; may be repeated.")] = None,
    engine: Annotated[str, typer.Option(help="Where the roles live: sim or local.")] = "sim",
    jobs: Annotated[int, typer.Option(min=0, help="Processes for sim; 0 is one for each core, four at most.")] = 0,
    runs_to_find: Annotated[
        bool, typer.Option("--runs-to-find", help="How many schedules it takes to find each planted bug.")
    ] = False,
    out: Annotated[Path | None, typer.Option("--out", help="Where schedules that go wrong are written.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print one JSON document.")] = False,
) -> None:
    """Run random schedules and judge each. Exit code 0: none was violated, and none was left unknown."""
    from testbed.places import require_folder
    from testbed.plants import find_plant
    from testbed.run_folder import runs_home
    from testbed.sweeping import SweepPlan, pool_of
    from training.errors import ConfigurationError

    if strategy not in _STRATEGIES:
        raise ConfigurationError(f"no strategy {strategy!r}; choose one of: {', '.join(_STRATEGIES)}")
    if engine not in ("sim", "local"):
        raise ConfigurationError(f"no sweep on engine {engine!r}; choose sim or local")
    for name in plant or ():
        find_plant(name)
    plan = SweepPlan(runs, seed, _STRATEGIES[strategy], _range_of(workers), tuple(plant or ()), engine)  # type: ignore[arg-type]
    folder = out or runs_home() / "sweeps"
    require_folder(folder, "the folder of the schedules", "--out or GRADSTORM_HOME")
    typer.echo(_command(plan, strategy, runs_to_find), err=as_json)
    processes = min(jobs or min(os.cpu_count() or 1, _PROCESSES_MAX), runs)
    with pool_of(processes) as pool:
        code = _find_each(plan, pool, as_json) if runs_to_find else _sweep(plan, pool, folder, as_json)
    raise typer.Exit(code)


def _range_of(text: str) -> tuple[int, int]:
    from chaos.training_setup import WORKERS_MAX
    from training.errors import ConfigurationError

    match = re.fullmatch(r"(\d+)(?:-(\d+))?", text)
    low, high = (int(match[1]), int(match[2] or match[1])) if match else (0, 0)
    if not 1 <= low <= high:
        raise ConfigurationError(f"--workers {text!r} is neither a number nor a range such as 3-8")
    if high > WORKERS_MAX:
        raise ConfigurationError(f"--workers {text!r}: a run has at most {WORKERS_MAX} workers")
    return low, high


def _command(plan: SweepPlan, strategy: str, runs_to_find: bool) -> str:
    """What makes the same sweep again."""
    low, high = plan.workers
    parts = ["gradstorm", "sweep", "--runs", str(plan.runs), "--seed", str(plan.first_seed)]
    parts += ["--workers", f"{low}-{high}", "--strategy", strategy, "--engine", plan.engine]
    parts += [part for name in plan.plants for part in ("--plant", name)] + ["--runs-to-find"] * runs_to_find
    return shlex.join(parts)


# ---------------------------------------------------------------- one sweep


def _sweep(plan: SweepPlan, pool: Pool | None, folder: Path, as_json: bool) -> ExitCode:
    from testbed import sweeping

    summary = sweeping.Summary()
    wrong: list[dict[str, Any]] = []
    began_s = told_s = time.monotonic()
    for outcome in sweeping.sweep(plan, pool):
        summary.add(outcome)
        if not outcome.passed:
            wrong.append(_look_into(outcome, plan, folder, small=len(wrong) < SHRUNK_MAX))
            typer.echo("\n".join(_wrong_lines(wrong[-1])), err=as_json)
        if time.monotonic() - told_s > _PROGRESS_S:
            told_s = time.monotonic()
            _say(f"{summary.runs} of {plan.runs} runs, {told_s - began_s:.0f} s, {_words(summary.verdicts)}")
    summary.seconds = time.monotonic() - began_s
    if as_json:
        typer.echo(json.dumps(_document(plan, summary, wrong), indent=2, sort_keys=True))
    else:
        typer.echo("\n".join(_summary_lines(summary)))
    return _exit_code(summary)


def _look_into(outcome: Outcome, plan: SweepPlan, folder: Path, small: bool) -> dict[str, Any]:
    """What is said of a run that did not pass; its schedule, made small where that works, is written down."""
    from chaos.scenario import scenario_yaml
    from testbed.run_folder import write_whole
    from testbed.sweeping import shrunk
    from training.errors import ConfigurationError

    scenario, tries = plan.scenario(outcome.seed, outcome.strategy), 0
    if small:
        _say(f"seed {outcome.seed}, {outcome.strategy}: {outcome.verdict}; making its schedule smaller …")
        try:
            result = shrunk(outcome, plan)
            scenario, tries = result.scenario, result.tries
        except ConfigurationError:
            _say("it does not go wrong again in the simulator; the schedule is written as it was")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"{scenario.name}-{outcome.strategy}.yaml"
    write_whole(path, scenario_yaml(scenario).encode())
    parts = ["gradstorm", "run", str(path), "--engine", plan.engine if not tries else "sim"]
    parts += ["--strategy", outcome.strategy, *(part for name in plan.plants for part in ("--plant", name))]
    return {
        "seed": outcome.seed,
        "strategy": outcome.strategy,
        "verdict": outcome.verdict,
        "violated": outcome.violated,
        "why": list(outcome.why),
        "schedule": str(path),
        "faults": len(scenario.faults),
        "tries": tries,
        "replay": shlex.join(parts),
    }


def _wrong_lines(wrong: dict[str, Any]) -> list[str]:
    lines = [f"{wrong['verdict'].upper()}: seed {wrong['seed']}, {wrong['strategy']}"]
    lines += [f"  {name}: {what}" for name, what in sorted(wrong["violated"].items())]
    if not wrong["violated"]:
        lines += [f"  because: {reason}" for reason in wrong["why"][:3]]
    how = f"made small in {wrong['tries']} tries" if wrong["tries"] else "as drawn"
    return [
        *lines,
        f"  schedule of {wrong['faults']} faults, {how}: {wrong['schedule']}",
        f"  replay: {wrong['replay']}",
    ]


def _summary_lines(summary: Summary) -> list[str]:
    lines = [
        f"runs        {summary.runs} in {summary.seconds:.1f} s",
        f"verdicts    {_words(summary.verdicts)}",
        f"steps       {summary.steps_committed} committed, {summary.steps_checked} checked; {summary.kills} kills",
        f"gradient    worst error {summary.worst_error_floors:.2f} noise floors; the tolerance is 4",
        f"observed    {_words(summary.observations) or 'nothing'}",
    ]
    passed = summary.verdicts.get("pass", 0)
    ending = "every run passed" if passed == summary.runs else f"{summary.runs - passed} runs did not pass"
    return [*lines, f"{summary.runs} random schedules: {ending}."]


def _document(plan: SweepPlan, summary: Summary, wrong: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "schema": "gradstorm.sweep/1",
        "command": _command(plan, _name_of(plan), runs_to_find=False),
        "engine": plan.engine,
        "plants": list(plan.plants),
        "runs": summary.runs,
        "verdicts": summary.verdicts,
        "steps_committed": summary.steps_committed,
        "steps_checked": summary.steps_checked,
        "kills": summary.kills,
        "worst_error_floors": summary.worst_error_floors,
        "observations": summary.observations,
        "seconds": summary.seconds,
        "wrong": wrong,
    }


def _name_of(plan: SweepPlan) -> str:
    return next(name for name, strategies in _STRATEGIES.items() if strategies == plan.strategies)


def _exit_code(summary: Summary) -> ExitCode:
    if summary.verdicts.get("violated"):
        return ExitCode.VIOLATED
    return ExitCode.PASS if summary.verdicts.get("pass") == summary.runs else ExitCode.UNKNOWN


# ---------------------------------------------------------------- runs to find


def _find_each(plan: SweepPlan, pool: Pool | None, as_json: bool) -> ExitCode:
    """For each planted bug the number of schedules until the verifier says what it must."""
    from testbed.finding import find, median_of
    from testbed.plants import PLANTS, find_plant

    able = [one for one in PLANTS.values() if set(one.strategies) & set(plan.strategies)]
    plants = [find_plant(name) for name in plan.plants] or able
    found = []
    for one in plants:
        found.append(find(one, plan, pool))
        number = found[-1].runs
        how = f"{number:5d}  {found[-1].how}" if number else f"  none in {plan.runs}"
        typer.echo(f"{one.name:30} {one.invariant or 'unknown':24} {how}", err=as_json)
    median = median_of(found)
    if as_json:
        rows = [{"bug": one.bug, "runs": one.runs, "how": one.how} for one in found]
        document = {"schema": "gradstorm.runs-to-find/1", "runs_max": plan.runs, "median": median, "bugs": rows}
        typer.echo(json.dumps(document, indent=2))
    else:
        hidden = sum(one.runs is None for one in found)
        typer.echo(f"{len(found)} bugs, {hidden} not found in {plan.runs} runs each; median runs to find: {median}")
    return ExitCode.PASS if all(one.runs for one in found) else ExitCode.VIOLATED


def _words(counts: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(counts.items()))


def _say(line: str) -> None:
    typer.echo(line, err=True)
