"""The engine `containers`: how long it takes to stand, what it and Toxiproxy cost, and how exact its faults are.

Needs a Docker daemon, the images, and a Toxiproxy binary for what the proxy alone costs.
"""

from __future__ import annotations

import os
import statistics
from typing import Any

from chaos.fault_kinds.base import PhaseTrigger
from chaos.fault_kinds.links import Latency
from chaos.fault_kinds.roles import Kill
from services.events import COORDINATOR
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, Peer, figure, times_the_cost
from testbed.bench.local_run import Measured, measured_run, rates_per_s, training
from testbed.bench.recovery import kills, recovery_ms
from testbed.bench.sizes import B288
from testbed.containers.toxiproxy_process import HOW_TO_GET_ONE, find_toxiproxy
from testbed.engines.containers import ContainersEngine
from testbed.engines.local import LocalEngine

WORKERS = 4
_STEPS, _STEPS_QUICK = 600, 200
_KILL_STEPS = 1200
_DELAYS_MS = (50, 100, 200)
_PHASES = ("open", "offer", "reduce", "ready", "apply", "applied")
_UP_GOAL = Goal("at_most", 15.0)
_RECOVERY_GOAL = Goal("at_most", 1000.0)
_LATENCY_GOAL = Goal("at_most", 15.0)
_ALWAYS = Goal("at_least", 100.0)


def _measure_up(bench: Bench) -> list[Figure]:
    took_s = []
    for number in range(1 if bench.quick else 3):
        bench.say(f"up, round {number + 1}: four workers until every role is there")
        run = measured_run(bench, training(B288, WORKERS, 8), engine=ContainersEngine())
        took_s.append(max(run.watch.up_s.values()) - run.watch.began_s)
    return [figure("containers.up_to_all_healthy", took_s, "s", goal=_UP_GOAL)]


def _measure_steps(bench: Bench) -> list[Figure]:
    steps = _STEPS_QUICK if bench.quick else _STEPS
    proxy = find_toxiproxy(os.environ)
    local: list[float] = []
    boxes: list[float] = []
    proxied: list[float] = []
    for number in range(1 if bench.quick else 2):
        bench.say(f"steps, round {number + 1}: containers, processes, processes through Toxiproxy")
        boxes += _steps_us(measured_run(bench, training(B288, WORKERS, steps), engine=ContainersEngine()))
        local += _steps_us(measured_run(bench, training(B288, WORKERS, steps)))
        if proxy is not None:
            through = LocalEngine(proxied=True)
            proxied += _steps_us(measured_run(bench, training(B288, WORKERS, steps), engine=through))
    peer = Peer("engine local", local, "us/step")
    found = [
        figure("containers.steps", [1e6 / us for us in boxes], "steps/s", note="" if proxy else HOW_TO_GET_ONE),
        times_the_cost("containers.cost_of_a_step", boxes, peer),
    ]
    if proxied:
        usual_us = statistics.median(local)
        found.append(times_the_cost("containers.cost_of_toxiproxy", proxied, peer, note="both in processes"))
        found.append(figure("containers.toxiproxy_per_step", [us - usual_us for us in proxied], "us"))
    return found


def _steps_us(run: Measured) -> list[float]:
    return [1e6 / rate for rate in rates_per_s(run)]


def _measure_recovery(bench: Bench) -> list[Figure]:
    own_ms: list[float] = []
    for number in range(1 if bench.quick else 3):
        bench.say(f"recovery, round {number + 1}: two kills")
        run = measured_run(bench, training(B288, WORKERS, _KILL_STEPS, kills()), engine=ContainersEngine())
        own_ms += recovery_ms(run.watch)
    return [figure("containers.sigkill_to_next_commit", own_ms, "ms", goal=_RECOVERY_GOAL)]


def _measure_faults(bench: Bench) -> list[Figure]:
    errors: list[float] = []
    for delay_ms in _DELAYS_MS[1:2] if bench.quick else _DELAYS_MS:
        bench.say(f"faults: {delay_ms} ms latency")
        scenario = training(B288, WORKERS, 24, (_latency(delay_ms),))
        witness = _witness(measured_run(bench, scenario, engine=ContainersEngine()))
        added_ms = float(witness["delay_ms"]) - float(witness["delay_before_ms"])
        errors.append(100.0 * abs(added_ms - delay_ms) / delay_ms)
    within: list[float] = []
    for phase in _PHASES[2:3] if bench.quick else _PHASES:
        bench.say(f"faults: a kill at {phase}")
        kill = Kill(kind="kill", target="worker-3", trigger=PhaseTrigger(step=5, phase=phase))
        witness = _witness(measured_run(bench, training(B288, WORKERS, 12, (kill,)), engine=ContainersEngine()))
        exact = (witness["exit_code"], witness["phase"], witness["step"]) == (137, phase, 5)
        within.append(100.0 if exact else 0.0)
    return [
        figure("containers.latency_error", errors, "%", goal=_LATENCY_GOAL, note="of 50, 100 and 200 ms"),
        figure("containers.kills_within_their_phase", within, "%", goal=_ALWAYS),
    ]


def _latency(delay_ms: float) -> Latency:
    return Latency(
        kind="latency",
        pairs=[["worker-2", COORDINATOR]],
        one_way=True,
        trigger=PhaseTrigger(role=COORDINATOR, step=5, phase="opened"),
        until=PhaseTrigger(role=COORDINATOR, step=15, phase="opened"),
        delay_ms=delay_ms,
    )


def _witness(run: Measured) -> dict[str, Any]:
    (fault,) = run.document["faults"]
    return dict(fault["witness"])


UP = Family(
    "up",
    "Containers: from the command to all healthy (images present, 4 workers, coordinator, verifier, Toxiproxy)",
    _measure_up,
    ("healthy: the role has linked to the driver and proved its data; networks and proxies are made in the same time",),
)
STEPS = Family(
    "steps",
    "Containers: committed steps per second beside local processes (ring, 4 workers, 288 B, verifier on)",
    _measure_steps,
    ("what Toxiproxy costs is measured between processes: the same run through it and without it",),
)
RECOVERY = Family("recovery", "Containers: SIGKILL of a worker to the next committed step", _measure_recovery)
FAULTS = Family(
    "faults",
    "Containers: how exact faults are",
    _measure_faults,
    (
        "latency: what heartbeats of the run took longer on the stated link, beside what was asked",
        "kills: the share that died at the phase asked for, exit code 137, by the witness",
    ),
)
