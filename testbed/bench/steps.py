"""Whole training steps in processes: verifier on and off, beside torch's DDP, and four workers beside one."""

from __future__ import annotations

import json
from collections import defaultdict
from dataclasses import dataclass, field

from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, Peer, figure, times_as_fast, times_the_cost
from testbed.bench.local_run import BATCH, Measured, measured_run, rates_per_s, training
from testbed.bench.sizes import B288, KB33, MB8, TRAINED, Size
from testbed.bench.torch_peer import NOT_FOUND

WORKERS = 4
TIMEOUT_S = 300.0
CHEAP_CHECKING = (B288, KB33)  # where the verifier keeps up; above, it lags
CHECKING_COSTS_AT_MOST = 1.15
SEED_SPEED_UP = {"288B": 0.62, "33KB": 1.28, "512KB": 1.59}  # of the framework that this one grew from
_STEPS = {"288B": 400, "33KB": 400, "512KB": 150, "8MB": 40}
_STEPS_QUICK = {"288B": 200, "33KB": 150}


@dataclass(slots=True)
class _Series:
    """Seconds from commit to commit, steps per second, and seconds to the verdict, over the rounds."""

    interval_us: list[float] = field(default_factory=list)
    rate: list[float] = field(default_factory=list)
    lag_s: list[float] = field(default_factory=list)

    def add(self, run: Measured) -> None:
        """What one run adds."""
        self.interval_us += [1e6 * second for second in run.intervals_s]
        self.rate += rates_per_s(run)
        self.lag_s.append(run.lag_s)


def _sizes(bench: Bench) -> tuple[list[Size], dict[str, int]]:
    steps = _STEPS_QUICK if bench.quick else _STEPS
    return [size for size in TRAINED if size.label in steps], steps


def _measure_steps(bench: Bench) -> list[Figure]:
    sizes, steps = _sizes(bench)
    found: list[Figure] = []
    for size in sizes:
        checked, unchecked, ddp_us = _Series(), _Series(), []
        for number in (1,) if bench.quick else (1, 2):
            bench.say(f"steps at {size.label}, round {number}: with verifier, DDP, without verifier")
            checked.add(measured_run(bench, training(size, WORKERS, steps[size.label])))
            ddp_us += _ddp(bench, size, steps[size.label])
            unchecked.add(measured_run(bench, training(size, WORKERS, steps[size.label]), verifier=False))
        found += _step_figures(bench, size, checked, unchecked, ddp_us)
    return found


def _ddp(bench: Bench, size: Size, steps: int) -> list[float]:
    if bench.torch is None:
        return []
    plan = [[size.feature_count, size.class_count, steps]]
    arguments = (str(WORKERS), str(BATCH), json.dumps(plan))
    took_us: list[float] = bench.torch.run("ddp_step.py", *arguments, timeout_s=TIMEOUT_S)[0]["us"]
    return took_us


def _step_figures(
    bench: Bench, size: Size, checked: _Series, unchecked: _Series, ddp_us: list[float]
) -> list[Figure]:  # fmt: skip
    name = f"steps.{size.label}"
    note = "" if bench.torch is not None else NOT_FOUND
    found = [
        figure(f"{name}.verifier_on", checked.rate, "steps/s"),
        figure(f"{name}.verifier_off", unchecked.rate, "steps/s", note="nothing of these runs was checked"),
        figure(f"{name}.step", checked.interval_us, "us", note=note),
    ]
    off = Peer("the same without a verifier", [1e6 / rate for rate in unchecked.rate], "us/step")
    goal = Goal("at_most", CHECKING_COSTS_AT_MOST) if size in CHEAP_CHECKING else None
    on_us = [1e6 / rate for rate in checked.rate]
    found.append(times_the_cost(f"{name}.cost_of_checking", on_us, off, goal=goal))
    found.append(figure(f"{name}.verifier_lag", checked.lag_s, "s", note="from the end of training to the verdict"))
    if bench.torch is not None:
        ddp = Peer(f"torch {bench.torch.version} DDP over gloo", ddp_us, "us")
        least = Goal("at_least", 0.6 if size is MB8 else 1.0)
        note = bench.torch.slow_blas
        found.append(times_as_fast(f"{name}.speed_to_ddp", checked.interval_us, ddp, goal=least, note=note))
    return found


def _measure_speed_up(bench: Bench) -> list[Figure]:
    sizes, steps = _sizes(bench)
    four: dict[str, list[float]] = defaultdict(list)
    one: dict[str, list[float]] = defaultdict(list)
    for number in (1,) if bench.quick else (1, 2):
        for size in sizes:
            bench.say(f"speed-up at {size.label}, round {number}: one worker, four workers")
            for workers, into in ((1, one), (WORKERS, four)):
                run = measured_run(bench, training(size, workers, steps[size.label]), verifier=False)
                into[size.label] += [1e6 / (rate * workers * BATCH) for rate in rates_per_s(run)]
    found = []
    for size in sizes:
        seed = SEED_SPEED_UP.get(size.label)
        note = f"the framework that this one grew from: {seed}x" if seed is not None else ""
        peer = Peer("one worker", one[size.label], "us/sample")
        found.append(times_as_fast(f"speed_up.{WORKERS}w.{size.label}", four[size.label], peer, note=note))
    return found


STEPS = Family(
    "steps",
    "Whole training steps of 4 workers in processes (ring), beside torch's DDP",
    _measure_steps,
    (
        f"softmax regression, float64, SGD with momentum, {BATCH} samples per worker; the same model and batch in DDP",
        "step is the median from commit to commit, as the driver hears of it; a checkpoint falls into every fifth",
        "verifier_on and verifier_off are steps per second in ten stretches of a run, checkpoints included",
    ),
)
SPEED_UP = Family(
    "speed-up",
    "Samples per second of 4 workers over 1 worker (ring, verifier off)",
    _measure_speed_up,
    (f"{BATCH} samples per worker in a step, so four workers take four times the samples of one",),
)
