"""Sweeps: many random schedules through the simulator, each judged like any other run, and what they add up to.

    for outcome in sweep(plan): …             # in the order of the runs, whatever the number of processes
    small = shrunk(outcome, plan)             # a violating schedule, made as small as it still violates

Run number k of a sweep has seed `first_seed + k // len(strategies)` and takes the strategies in turn, so a sweep over
both gives each schedule's draw to both. Nothing is kept of a run but its `Outcome`.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass, field
from itertools import islice
from multiprocessing import resource_tracker
from pathlib import Path
from typing import Any

from chaos.random_schedule import SweepLimits, random_scenario
from chaos.scenario import Scenario
from chaos.shrink import Shrunk, shrink
from services.config import Strategy
from services.events import DRIVER
from services.records import Fact, FaultActed
from testbed.api import one_blas_thread, run
from testbed.engines.base import EngineError, Silent
from testbed.engines.sim import SimEngine
from testbed.planning import RunRequest, prepare
from testbed.results import verifier_part
from training.errors import GradstormError

WINDOW_PER_PROCESS = 8  # runs that are handed out ahead of the one whose outcome is due
CRASHED = "crashed"
_BUGS = (GradstormError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError)


@dataclass(frozen=True, slots=True)
class SweepPlan:
    """What to sweep over."""

    runs: int
    first_seed: int = 0
    strategies: tuple[Strategy, ...] = ("ring", "ps")
    workers: tuple[int, int] = (3, 6)
    plants: tuple[str, ...] = ()
    engine: str = "sim"

    def job(self, number: int) -> tuple[int, Strategy]:
        """Seed and strategy of run `number`, from 0."""
        count = len(self.strategies)
        return self.first_seed + number // count, self.strategies[number % count]

    def scenario(self, seed: int, strategy: Strategy) -> Scenario:
        return random_scenario(seed, self.engine, strategy, SweepLimits(workers=self.workers))


@dataclass(frozen=True, slots=True)
class Outcome:
    """What one run came to. `verdict` is "crashed" when it could not be judged at all; `why` then says so."""

    seed: int
    strategy: Strategy
    verdict: str
    seconds: float
    steps_committed: int = 0
    steps_checked: int = 0
    kills: int = 0
    worst_error_floors: float | None = None
    violated: dict[str, str] = field(default_factory=dict)  # invariant -> first violation, in words
    why: tuple[str, ...] = ()
    observations: dict[str, int] = field(default_factory=dict)

    @property
    def passed(self) -> bool:
        return self.verdict == "pass"


# ---------------------------------------------------------------- one run


class _Kills(Silent):
    """Counts processes that faults killed."""

    def __init__(self) -> None:
        self.count = 0

    def fact(self, role: str, fact: Fact) -> None:
        if (
            role == DRIVER
            and isinstance(fact, FaultActed)
            and ("exit_code" in fact.witness or "killed" in fact.witness)
        ):
            self.count += len(str(fact.witness.get("killed", "one")).split(","))


def run_scenario(
    scenario: Scenario, strategy: Strategy, plants: tuple[str, ...], seed: int = 0, engine: str = "sim"
) -> Outcome:
    """One run, judged. Never raises for what a run can come to."""
    began_s = time.monotonic()
    make = _simulated if engine == "sim" else _on_processes
    try:
        with one_blas_thread():
            document = make(scenario, strategy, plants)
    except (
        GradstormError,
        ArithmeticError,
        LookupError,
        TypeError,
        ValueError,
        AssertionError,
        AttributeError,
    ) as error:
        why = f"{type(error).__name__}: {error}"
        return Outcome(seed, strategy, CRASHED, time.monotonic() - began_s, why=(why,))
    return outcome_of(document, seed, strategy, time.monotonic() - began_s)


def _simulated(scenario: Scenario, strategy: Strategy, plants: tuple[str, ...]) -> dict[str, Any]:
    """In memory: no folder is made. The part of a run's document that a sweep wants."""
    prepared = prepare(RunRequest(scenario, "sim", strategy=strategy, plants=plants))
    kills = _Kills()
    result = SimEngine().run_in_memory(prepared.plan, kills)
    ending = {"aborted": result.aborted, "stop_condition": result.stop_condition, "stop_reason": result.stop_reason}
    verdict = str(result.verdict.get("verdict", "unknown"))
    return {**verifier_part(result.verdict), **ending, "verdict": verdict, "kills": kills.count}


def _on_processes(scenario: Scenario, strategy: Strategy, plants: tuple[str, ...]) -> dict[str, Any]:
    """With real processes, in a folder that goes with the run."""
    with tempfile.TemporaryDirectory(prefix="gradstorm-sweep-") as home:
        return run(scenario, "local", strategy=strategy, plant=plants, out=Path(home) / "run").document


def outcome_of(document: dict[str, Any], seed: int, strategy: Strategy, seconds: float) -> Outcome:
    """What a run's document says that a sweep wants to know."""
    found = document["invariants"]
    why = [*document["reasons"], *filter(None, [document["aborted"]])]
    verdict = document["verdict"]
    if verdict == "pass" and (document["aborted"] or document["stop_condition"] != "finished"):
        verdict = "unknown"
        why.append(f"{document['stop_condition']} {document['stop_reason']}".strip())
    return Outcome(
        seed,
        strategy,
        verdict,
        seconds,
        document["steps_committed"],
        document["steps_checked"],
        document["kills"],
        document["gradient"].get("worst_error_floors"),
        {name: _first(entry) for name, entry in found.items() if entry["verdict"] == "violated"},
        tuple(why),
        {seen["kind"]: int(seen["count"]) for seen in document["observations"]},
    )


def _first(entry: dict[str, Any]) -> str:
    first = entry["first_violation"]
    return f"step {first['step']}, {first['role']}: {first['what']}"


# ---------------------------------------------------------------- many runs


@dataclass(frozen=True, slots=True)
class Pool:
    """Processes for simulated runs."""

    executor: ProcessPoolExecutor
    processes: int

    def submit(self, plan: SweepPlan, number: int) -> Future[Outcome]:
        """Hand a run out. Whatever process starts for it never sees Ctrl-C or a closed terminal: those are ours."""
        resource_tracker.ensure_running()  # once it runs, starting a process leaves the mask alone
        before = signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGINT, signal.SIGHUP})
        try:
            return self.executor.submit(_run_number, plan, number)
        finally:
            signal.pthread_sigmask(signal.SIG_SETMASK, before)


@contextlib.contextmanager
def pool_of(processes: int) -> Iterator[Pool | None]:
    """So many processes to run sweeps in, one sweep after the other; None, this one alone, for fewer than two."""
    if processes < 2:
        yield None
        return
    spawn = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(processes, spawn, initializer=_live_with_the_parent) as executor:
        try:
            yield Pool(executor, processes)
        except BrokenProcessPool as error:
            raise EngineError("a process of the sweep was killed, perhaps for want of memory; try --jobs 1") from error


def _live_with_the_parent() -> None:
    """In a process of the pool: the parent's death, however sudden, is ours too."""
    parent = multiprocessing.parent_process()
    assert parent is not None

    def watch() -> None:
        parent.join()
        os._exit(1)

    threading.Thread(target=watch, daemon=True).start()


def sweep(plan: SweepPlan, pool: Pool | None = None) -> Iterator[Outcome]:
    """The outcomes, in the order of the runs. Processes of the machine's own are run one at a time."""
    if pool is None or plan.engine != "sim":
        yield from (_run_number(plan, number) for number in range(plan.runs))
        return
    numbers = iter(range(plan.runs))
    due = [pool.submit(plan, number) for number in islice(numbers, pool.processes * WINDOW_PER_PROCESS)]
    try:
        while due:
            outcome = due.pop(0).result()
            due += [pool.submit(plan, number) for number in islice(numbers, 1)]
            yield outcome
    except BrokenProcessPool:
        due.clear()  # the pool itself ends them; it cannot bear one that was cancelled meanwhile
        raise
    finally:
        for future in due:
            future.cancel()  # whoever asked has seen enough


def _run_number(plan: SweepPlan, number: int) -> Outcome:
    seed, strategy = plan.job(number)
    return run_scenario(plan.scenario(seed, strategy), strategy, plan.plants, seed, plan.engine)


# ---------------------------------------------------------------- what it adds up to


@dataclass(slots=True)
class Summary:
    """Totals of a sweep."""

    runs: int = 0
    verdicts: dict[str, int] = field(default_factory=dict)
    steps_committed: int = 0
    steps_checked: int = 0
    kills: int = 0
    worst_error_floors: float = 0.0
    observations: dict[str, int] = field(default_factory=dict)
    seconds: float = 0.0

    def add(self, outcome: Outcome) -> None:
        self.runs += 1
        self.verdicts[outcome.verdict] = self.verdicts.get(outcome.verdict, 0) + 1
        self.steps_committed += outcome.steps_committed
        self.steps_checked += outcome.steps_checked
        self.kills += outcome.kills
        self.worst_error_floors = max(self.worst_error_floors, outcome.worst_error_floors or 0.0)
        for kind, count in outcome.observations.items():
            self.observations[kind] = self.observations.get(kind, 0) + count


def shrunk(outcome: Outcome, plan: SweepPlan, tries_max: int = 200) -> Shrunk:
    """The smallest schedule found that goes wrong in the same way. Raises ConfigurationError if this one does not."""

    def violates(scenario: Scenario) -> bool:
        again = run_scenario(scenario, outcome.strategy, plan.plants)
        if outcome.violated:
            return bool(outcome.violated.keys() & again.violated.keys())
        return again.verdict == outcome.verdict

    return shrink(plan.scenario(outcome.seed, outcome.strategy), violates, tries_max)
