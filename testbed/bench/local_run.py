"""One run, of the engine `local` as a rule, with a stopwatch on what the coordinator tells of."""

from __future__ import annotations

import itertools
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from chaos.faults import AnyFault
from chaos.scenario import Overrides, Scenario, checked, override
from chaos.training_setup import DatasetSetup
from services.records import Committed, Fact, ShardsCommitted
from services.records import Finished as RunFinished
from testbed.api import carry_out
from testbed.bench.family import Bench
from testbed.bench.sizes import Size
from testbed.catalog import find_scenario
from testbed.engines import engine_named
from testbed.engines.base import Engine, EngineError, ProgressSink
from testbed.planning import RunRequest, prepare

BATCH = 32  # samples of each worker in a step
_WARM_UP_SHARE = 0.1


@dataclass(frozen=True, slots=True)
class Seen:
    """A commit, when the driver heard of it."""

    at_s: float
    step: int
    generation: int


@dataclass(slots=True)
class Stopwatch:
    """A progress sink that only looks at the time (of one clock: this process's)."""

    commits: list[Seen] = field(default_factory=list)
    kills_s: list[float] = field(default_factory=list)
    finished_s: float = 0.0
    began_s: float = 0.0
    up_s: dict[str, float] = field(default_factory=dict)  # when a role's first launch was there
    clock: Callable[[], float] = time.perf_counter

    def role(self, role: str, launch: int, state: str) -> None:
        """Kills are told right before the signal."""
        if state == "up" and launch == 1:
            self.up_s.setdefault(role, time.perf_counter())
        if state == "killed":
            self.kills_s.append(self.clock())

    def fact(self, role: str, fact: Fact) -> None:
        """Commits, and the end."""
        if isinstance(fact, Committed | ShardsCommitted):
            self.commits.append(Seen(self.clock(), fact.step, fact.generation))
        elif isinstance(fact, RunFinished):
            self.finished_s = self.clock()

    def judged(self, so_far: Mapping[str, str]) -> None:
        """Not looked at."""

    def note(self, text: str) -> None:
        """Not looked at."""

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        """Not looked at."""


@dataclass(frozen=True, slots=True)
class Measured:
    """What a run took. `lag_s` is from its end to the verdict, 0 without a verifier."""

    watch: Stopwatch
    lag_s: float
    document: dict[str, Any]

    @property
    def intervals_s(self) -> list[float]:
        """From commit to commit, the first ones left out."""
        times = [seen.at_s for seen in self.watch.commits]
        times = times[int(_WARM_UP_SHARE * len(times)) :]
        return [after - before for before, after in itertools.pairwise(times)]


def training(size: Size, workers: int, steps: int, faults: tuple[AnyFault, ...] = ()) -> Scenario:
    """Softmax regression of that size on blobs, undisturbed but for `faults`."""
    dataset = DatasetSetup(
        sample_count=size.sample_count, feature_count=size.feature_count, class_count=size.class_count
    )
    wanted = Overrides(workers=workers, steps=steps, batch_size=BATCH, dataset=dataset)
    disturbed = {"faults": list(faults), "fixed": not any(fault.timed for fault in faults)}
    return checked(override(find_scenario("clean"), wanted).model_copy(update=disturbed), "bench")


def measured_run(
    bench: Bench, scenario: Scenario, *, strategy: str = "ring", verifier: bool = True, engine: str | Engine = "local"
) -> Measured:
    """Run it. Raises EngineError when it does not end as it must: a figure of a broken run would mean nothing."""
    watch = Stopwatch(began_s=time.perf_counter())
    document = carry_out_measured(bench, scenario, watch, engine=engine, strategy=strategy, verifier=verifier)
    return Measured(watch, time.perf_counter() - watch.finished_s if verifier else 0.0, document)


def carry_out_measured(
    bench: Bench,
    scenario: Scenario,
    watch: ProgressSink,
    *,
    engine: str | Engine = "local",
    strategy: str,
    verifier: bool = True,
) -> dict[str, Any]:
    """The run's document. Raises EngineError as `measured_run` does."""
    out, where = bench.scratch("run"), engine_named(engine) if isinstance(engine, str) else engine
    prepared = prepare(RunRequest(scenario=scenario, engine=where.name, strategy=strategy, out=Path(out)))
    prepared = replace(prepared, plan=replace(prepared.plan, verifier=verifier), engine=where)
    result = carry_out(prepared, watch)
    expected = "pass" if verifier else "unknown"
    if result.verdict != expected or result.document["stop_condition"] != "finished":
        reasons = "; ".join(result.document["reasons"])
        raise EngineError(f"a run that was measured came out {result.verdict}, not {expected}: {reasons}; see {out}")
    return result.document


def rates_per_s(run: Measured, windows: int = 10) -> list[float]:
    """Committed steps per second in so many stretches of equally many steps."""
    intervals = run.intervals_s
    length = max(1, len(intervals) // windows)
    stretches = [intervals[at : at + length] for at in range(0, len(intervals) - length + 1, length)]
    return [length / sum(stretch) for stretch in stretches]
