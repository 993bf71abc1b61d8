"""A long schedule for a soak: one worker after the other dies, stops or is cut off, and comes back, for hours if asked.

    scenario = soak_scenario(seed, faults=200, engine="containers", partitions=True)   # the same arguments, the same

Coordinator, server and verifier live through all of it, so that what they hold can be watched. Every fault has its
point in the run, so the result is fixed: the same seed ends with the same parameters in the simulator.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from chaos.dice import between, pick
from chaos.scenario import Scenario, checked
from chaos.training_setup import STEPS_MAX
from services.events import COORDINATOR
from training.errors import ConfigurationError

WORKERS = 4
# Patient: on a busy machine a container takes long to start, and nobody may be lost that no fault took.
_TIMING = {"lease_ms": 4000.0, "deadline_ms": 20_000.0, "exchange_ms": 10_000.0, "join_wait_ms": 120_000.0}
_PHASES = ("open", "offer", "reduce", "ready", "apply", "applied")
_AWAY = (2, 5)  # steps, both ends included
_BETWEEN = (10, 40)
_FIRST = 2
_CLEAN_STEPS = 5
_SAMPLES = 4000
FAULTS_MAX = (STEPS_MAX - _FIRST - _CLEAN_STEPS) // (_AWAY[1] + _BETWEEN[1])  # so many fit one run, whatever is drawn


def soak_scenario(seed: int, faults: int, engine: str, *, partitions: bool) -> Scenario:
    """So many faults, one after the other; with probability 1/4 a second worker is killed together with the first.

    Raises ConfigurationError for more than FAULTS_MAX.
    """
    if faults > FAULTS_MAX:
        raise ConfigurationError(
            f"{faults} faults: a run of {STEPS_MAX:,} steps, the longest, has room for {FAULTS_MAX:,};"
            " make several runs, each with a seed of its own"
        )
    generator = np.random.Generator(np.random.PCG64(seed))
    drawn, step = [], _FIRST
    for _ in range(faults):
        step += between(generator, _BETWEEN)
        back = step + between(generator, _AWAY)
        drawn += list(_drawn(generator, step, back, partitions))
        step = back
    plain = {
        "name": f"soak-{seed}",
        "title": f"{faults} times a worker dies, stops or is cut off, and comes back",
        "engines": [engine],
        "training": {
            "dataset": {"sample_count": _SAMPLES, "seed": seed},
            "batch": {"size": 8},
            "workers": WORKERS,
            "steps": step + _CLEAN_STEPS,
            "seed": seed,
            "checkpoint_every": 50,
            "timing": dict(_TIMING),
        },
        "faults": drawn,
        "clean_steps": _CLEAN_STEPS,
    }
    return checked(Scenario.model_validate(plain), f"soak {seed}")


def _drawn(generator: np.random.Generator, step: int, back: int, partitions: bool) -> Iterator[dict[str, Any]]:
    first, second = (f"worker-{int(number) + 1}" for number in generator.permutation(WORKERS)[:2])
    kind = pick(generator, ("kill", "pause", "partition") if partitions else ("kill", "pause"))
    if kind == "kill":
        yield _kill(generator, first, step, back)
    elif kind == "pause":
        phase = pick(generator, ("open", "offer"))
        yield {"kind": kind, "target": first, "trigger": {"step": step, "phase": phase}, "return_at": back}
    else:
        others = [f"worker-{number}" for number in range(1, WORKERS + 1) if f"worker-{number}" != first]
        yield {
            "kind": kind,
            "groups": [[first], [COORDINATOR, *others]],
            "one_way": bool(generator.random() < 0.5),
            "trigger": {"role": COORDINATOR, "step": step, "phase": "opened"},
            "return_at": back,
        }
    if kind != "partition" and generator.random() < 0.25:
        yield _kill(generator, second, step, back)


def _kill(generator: np.random.Generator, worker: str, step: int, back: int) -> dict[str, Any]:
    trigger = {"step": step, "phase": pick(generator, _PHASES)}
    return {"kind": "kill", "target": worker, "trigger": trigger, "relaunch_at": back}
