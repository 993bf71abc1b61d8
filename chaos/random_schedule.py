"""Random scenarios from a seed, for sweeps: a small training setup and a few faults that make sense together.

    scenario = random_scenario(seed, "sim", "ring")      # the same for the same arguments, for ever

Faults are drawn one after another and kept when the scenario still makes sense (`chaos.checks`), so whatever comes
out can be run: no target that is gone by then, nobody dead twice, somebody left in every step, unless everybody is
killed at once and comes back. Only kinds that the engine can do are drawn, and no fault follows a clock.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from chaos.checks import problems
from chaos.dice import between, pick, pick_weighted
from chaos.fault_kinds.base import is_worker
from chaos.fault_kinds.links import Cut, LinkFault
from chaos.fault_kinds.roles import AddWorker, Kill, Pause
from chaos.faults import AnyFault, cannot
from chaos.membership import workers_of
from chaos.phases import JOINER, phases_of
from chaos.scenario import Scenario
from services.config import Strategy
from services.events import COORDINATOR, SERVER, VERIFIER

Draw = dict[str, Any]

_DRAWS_PER_FAULT = 12
_CLEAN_STEPS = 3
_TIMING = {"lease_ms": 1500.0, "deadline_ms": 2000.0, "exchange_ms": 1000.0}


@dataclass(frozen=True, slots=True)
class SweepLimits:
    """Bounds of what is drawn, both ends included."""

    workers: tuple[int, int] = (3, 6)
    steps: tuple[int, int] = (12, 24)
    faults: tuple[int, int] = (1, 4)


def random_scenario(
    seed: int, engine: str = "sim", strategy: Strategy = "ring", limits: SweepLimits | None = None
) -> Scenario:
    """The scenario number `seed`. It passes `chaos.checks.problems`, and `refusals` for that engine and strategy."""
    limits = limits or SweepLimits()
    generator = np.random.Generator(np.random.PCG64(seed))
    scenario = _setup(generator, seed, engine, strategy, limits)
    wanted = between(generator, limits.faults)
    for _ in range(wanted * _DRAWS_PER_FAULT):
        if len(scenario.faults) >= wanted:
            break
        drawn = _draw(generator, scenario, engine, strategy)
        if len(scenario.faults) + len(drawn) <= limits.faults[1]:
            scenario = _kept(scenario, drawn, engine)
    return scenario


def _setup(generator: np.random.Generator, seed: int, engine: str, strategy: Strategy, limits: SweepLimits) -> Scenario:
    per_worker = bool(generator.random() < 0.7)
    shape, chunks = _shape(generator)
    training = {
        **shape,
        "batch": {
            "mode": "per_worker" if per_worker else "global",
            "size": between(generator, (1, 9) if per_worker else (3, 40)),
        },
        "optimizer": {"momentum": pick(generator, (0.0, 0.9))},
        "workers": between(generator, limits.workers),
        "steps": between(generator, limits.steps),
        "seed": between(generator, (0, 2**31)),
        "chunk_elements": pick(generator, chunks),
        "checkpoint_every": between(generator, (2, 7)),
        "timing": dict(_TIMING),
    }
    head = {"name": f"random-{seed}", "title": f"Random schedule {seed}", "engines": [engine], "strategies": [strategy]}
    return Scenario.model_validate({**head, "training": training, "clean_steps": _CLEAN_STEPS})


def _shape(generator: np.random.Generator) -> tuple[Draw, tuple[int, ...]]:
    """Data and model, and sizes of chunks to choose from.

    Noise is never exactly zero: a bug in the sign of a zero shows only in data that have some, as the margins of
    digits do.
    """
    blobs: Draw = {"sample_count": between(generator, (5, 211)), "seed": between(generator, (0, 9))}
    luck = generator.random()
    if luck < 0.1:
        return {"dataset": {"kind": "digits", "seed": blobs["seed"]}}, (131, 650, 131_072)
    if luck < 0.25:
        model = {"kind": "mlp", "hidden_count": between(generator, (2, 5))}
        return {"dataset": blobs, "model": model}, (7, 36, 131_072)
    return {"dataset": blobs}, (5, 7, 36, 131_072)


def _kept(scenario: Scenario, drawn: Sequence[Draw], engine: str) -> Scenario:
    """With the drawn faults if it still makes sense, else as it was."""
    plain = scenario.model_dump(exclude_defaults=True)
    candidate = Scenario.model_validate({**plain, "faults": [*plain.get("faults", []), *drawn], "fixed": True})
    if any(isinstance(fault, LinkFault) and not _evicts(fault) for fault in candidate.faults):
        candidate = candidate.model_copy(update={"fixed": False})
    able = all(cannot(fault, engine) == "" for fault in candidate.faults)
    return candidate if drawn and able and not problems(candidate) else scenario


def _evicts(fault: AnyFault) -> bool:
    return isinstance(fault, Cut) and fault.return_at is not None


# ---------------------------------------------------------------- one draw


def _draw(generator: np.random.Generator, scenario: Scenario, engine: str, strategy: Strategy) -> list[Draw]:
    """One fault, or two that belong together; perhaps none. Whether it makes sense is looked at afterwards."""
    makers: list[tuple[float, Callable[[np.random.Generator, Scenario], list[Draw]]]] = [
        (5, _kill_worker),
        (2, _pause),
        (2, _straggle),
        (1, _add),
        (1.5, _kill_coordinator),
        (1, _kill_verifier),
        (1, _kill_everyone),
        (1, _kill_joiner),
    ]
    if strategy == "ps":
        makers.append((1.5, _kill_server))
    if engine == "sim":
        makers += [(2, _disturb_links), (1, _cut_off)]
    return pick_weighted(generator, makers)(generator, scenario)


def _kill_worker(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    worker = _worker(generator, scenario)
    phase = pick(generator, [info.name for info in phases_of(worker) if info.kind != JOINER])
    trigger: Draw = {"step": _step(generator, scenario), "phase": phase}
    if phase == "reduce" and generator.random() < 0.5:
        trigger["chunk"] = between(generator, (0, (scenario.training.chunk_count or 1) - 1))
    fault: Draw = {"kind": "kill", "target": worker, "trigger": trigger}
    if generator.random() < 0.5:
        fault["relaunch_at"] = trigger["step"] + between(generator, (1, 5))
    return [fault]


def _kill_joiner(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    joins = [(fault.target, fault.step) for fault in scenario.faults if isinstance(fault, AddWorker)]
    joins += [
        (fault.target, fault.relaunch_at)
        for fault in scenario.faults
        if isinstance(fault, Kill) and fault.relaunch_at is not None and is_worker(fault.target)
    ]
    joins += [
        (fault.target, fault.return_at) for fault in scenario.faults if isinstance(fault, Pause) and fault.return_at
    ]
    if not joins:
        return []
    worker, step = pick(generator, joins)
    return [{"kind": "kill", "target": worker, "trigger": {"step": step, "phase": pick(generator, ("sync", "proved"))}}]


def _pause(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    worker, step = _worker(generator, scenario), _step(generator, scenario)
    phase = pick(generator, [info.name for info in phases_of(worker) if info.kind != JOINER])
    back = step + between(generator, (1, 5))
    return [{"kind": "pause", "target": worker, "trigger": {"step": step, "phase": phase}, "return_at": back}]


def _straggle(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    return [{"kind": "straggle", "target": _worker(generator, scenario), "step": _step(generator, scenario)}]


def _add(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    newest = max(workers_of(scenario.faults, scenario.training.workers))
    return [{"kind": "add", "target": f"worker-{newest + 1}", "step": _step(generator, scenario)}]


def _kill_coordinator(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    return [_kill_single(generator, scenario, COORDINATOR)]


def _kill_server(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    return [_kill_single(generator, scenario, SERVER)]


def _kill_verifier(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    return [_kill_single(generator, scenario, VERIFIER)]


def _kill_single(generator: np.random.Generator, scenario: Scenario, role: str) -> Draw:
    phase = pick(generator, [info.name for info in phases_of(role)])
    return {"kind": "kill", "target": role, "trigger": {"step": _step(generator, scenario), "phase": phase}}


def _kill_everyone(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    trigger = {
        "step": _step(generator, scenario),
        "phase": pick(generator, [info.name for info in phases_of(COORDINATOR)]),
    }
    kill: Draw = {"kind": "kill", "target": "everyone", "trigger": trigger}
    if generator.random() < 0.5:
        return [kill]
    how = pick(generator, ("truncate", "flip", "zero", "remove_pointer"))
    return [{"kind": "corrupt_checkpoint", "how": how, "trigger": trigger}, kill]


def _disturb_links(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    training = scenario.training
    parts = 2 * (training.chunk_count or 1) * training.workers  # of one attempt; what breaks it starts it anew
    rarely = min(0.02, 0.7 / parts)
    kind, settings = pick(
        generator,
        (
            ("latency", {"delay_ms": 20.0}),
            ("jitter", {"jitter_ms": 30.0}),
            ("drop", {"probability": rarely}),
            ("duplicate", {"probability": 0.2}),
            ("reorder", {"probability": 0.2}),
            ("corrupt_payload", {"probability": rarely}),
        ),
    )
    workers = [f"worker-{worker}" for worker in range(1, scenario.training.workers + 1)]
    step = _step(generator, scenario)
    until = step + between(generator, (2, 6))
    return [
        {
            "kind": kind,
            "groups": [[COORDINATOR], *([worker] for worker in workers)],
            "trigger": {"role": COORDINATOR, "step": step, "phase": "opened"},
            "until": {"role": COORDINATOR, "step": until, "phase": "opened"},
            **settings,
        }
    ]


def _cut_off(generator: np.random.Generator, scenario: Scenario) -> list[Draw]:
    workers = [f"worker-{worker}" for worker in range(1, scenario.training.workers + 1)]
    cut = sorted(generator.permutation(workers)[: between(generator, (1, max(1, len(workers) - 1)))].tolist())
    stay = [worker for worker in workers if worker not in cut]
    step = _step(generator, scenario)
    return [
        {
            "kind": "partition",
            "groups": [[COORDINATOR, *stay], cut],
            "trigger": {"role": COORDINATOR, "step": step, "phase": "opened"},
            "return_at": step + between(generator, (1, 5)),
        }
    ]


# ---------------------------------------------------------------- dice


def _step(generator: np.random.Generator, scenario: Scenario) -> int:
    return between(generator, (1, max(1, scenario.training.steps - _CLEAN_STEPS)))


def _worker(generator: np.random.Generator, scenario: Scenario) -> str:
    return f"worker-{pick(generator, workers_of(scenario.faults, scenario.training.workers))}"
