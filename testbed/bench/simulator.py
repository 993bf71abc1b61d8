"""How many steps a second the simulator trains and checks, verdict included, on one core."""

from __future__ import annotations

import time

from chaos.scenario import Overrides, override
from testbed.api import carry_out
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, figure
from testbed.catalog import find_scenario
from testbed.engines.base import EngineError
from testbed.planning import RunRequest, prepare

GOAL = Goal("at_least", 1500.0)
WORKERS = 4
STRATEGIES = ("ring", "ps")


def _measure(bench: Bench) -> list[Figure]:
    rounds, steps = (2, 200) if bench.quick else (5, 600)
    core: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    wall: dict[str, list[float]] = {strategy: [] for strategy in STRATEGIES}
    for number in range(rounds):
        for strategy in STRATEGIES:
            bench.say(f"simulator, {strategy}, {steps} steps, round {number + 1} of {rounds}")
            core_s, wall_s = _run(bench, strategy, steps)
            core[strategy].append(steps / core_s)
            wall[strategy].append(steps / wall_s)
    found = []
    for strategy in STRATEGIES:
        name = f"simulator.checked_steps.{strategy}"
        found.append(figure(name, core[strategy], "steps per s of one core", goal=GOAL))
        found.append(figure(f"{name}.wall", wall[strategy], "steps/s", note="by the clock, others' load included"))
    return found


def _run(bench: Bench, strategy: str, steps: int) -> tuple[float, float]:
    """Seconds of the processor and of the clock for one run, from its plan to its verdict."""
    scenario = override(find_scenario("clean"), Overrides(workers=WORKERS, steps=steps))
    prepared = prepare(RunRequest(scenario=scenario, engine="sim", strategy=strategy, out=bench.scratch("simulated")))
    core_s, wall_s = time.process_time(), time.perf_counter()
    result = carry_out(prepared)
    core_s, wall_s = time.process_time() - core_s, time.perf_counter() - wall_s
    if not result.passed or result.document["steps_checked"] != steps:
        raise EngineError(f"a simulated run came out {result.verdict}: {'; '.join(result.document['reasons'])}")
    return core_s, wall_s


FAMILY = Family(
    "simulator",
    "Simulated steps, trained and checked",
    _measure,
    ("4 workers, softmax regression of 288 B, scenario clean as it is: checkpoints and verdict included",),
)
