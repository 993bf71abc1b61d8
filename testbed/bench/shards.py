"""Layer-sharded training: a pipelined step beside the central one, the default model in the simulator, and the codec.

A step is measured from commit to commit, without a verifier, since what it is compared with checks nothing either.
"""

from __future__ import annotations

import itertools
import json
import os
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path

import numpy as np

from chaos.scenario import Scenario, parse_scenario, scenario_yaml
from testbed.api import carry_out
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, Peer, figure, times_as_fast
from testbed.bench.local_run import Stopwatch
from testbed.engines.base import EngineError
from testbed.environment import BLAS_THREAD_SETTINGS
from testbed.planning import RunRequest, prepare
from training.boundary_codec.codec import decode, encode
from training.boundary_codec.payload import payload_bytes

KEEP_PERCENT, BITS = 50, 6
BOUNDARY = 1 << 20  # elements, 8 MB
MICRO_BATCHES = 8
CENTRAL_TIMEOUT_S = 600.0
_PIPELINED = f"""
name: pipelined
title: A model of some 15 MB in two shards
training:
  kind: shards
  model: {{block_count: 6, width: 160, mlp_width: 640, head_count: 4, context: 64}}
  cuts: [3]
  batch: 32
  micro_batches: {MICRO_BATCHES}
  evaluation_contexts: 1
"""
_DEFAULT = """
name: default-model
title: The prototype's model in three shards
training: {kind: shards, evaluation_contexts: 1}
"""


def _measure_steps(bench: Bench) -> list[Figure]:
    rounds, steps = (1, 6) if bench.quick else (3, 10)
    own, one, two = list[float](), list[float](), list[float]()
    elements = 0
    for number in range(rounds):
        bench.say(f"pipelined step, round {number + 1} of {rounds}: two shards, central with one thread, with two")
        own += _intervals_us(bench, _scenario(_PIPELINED, steps), "local")
        for threads, took_us in ((1, one), (2, two)):
            more_us, elements = _central(bench, _scenario(_PIPELINED, steps), steps, threads)
            took_us += more_us  # noqa: PLW2901 - the list grows
    size = f"{8 * elements / 1e6:.1f} MB of parameters, {MICRO_BATCHES} micro-batches"
    peers = (Peer("central, one thread", one, "us"), Peer("central, two threads", two, "us"))
    goals = (Goal("at_least", 1.5), None)
    ratios = [
        times_as_fast(f"shards.pipelined_step.speed_to_central_{threads}", own, peer, goal=goal)
        for threads, peer, goal in zip((1, 2), peers, goals, strict=True)
    ]
    return [figure("shards.pipelined_step", own, "us", note=size), *ratios, *_default_step(bench), *_bytes(bench)]


def _default_step(bench: Bench) -> list[Figure]:
    steps = 20 if bench.quick else 60
    bench.say(f"the default model in the simulator, {steps} steps unchecked, then central")
    scenario = _scenario(_DEFAULT, steps)
    own = _intervals_us(bench, scenario, "sim")
    peer = Peer("central, one thread", _central(bench, scenario, steps, 1, "one-core")[0], "us")
    note = "the prototype took 44 ms"
    return [
        figure("shards.default_step.sim", own, "us", goal=Goal("at_most", 44_000.0), note=note),
        times_as_fast("shards.default_step.speed_to_central", own, peer),
    ]


def _bytes(bench: Bench) -> list[Figure]:
    """Bytes of the boundaries of a step of the default model, dense and compressed, as received."""
    found = []
    compression = f"{{keep_percent: {KEEP_PERCENT}, bits: {BITS}}}"
    compressed = _DEFAULT.replace("evaluation_contexts: 1", f"evaluation_contexts: 1, compression: {compression}")
    for name, text in (("dense", _DEFAULT), (f"top{KEEP_PERCENT}_{BITS}bit", compressed)):
        result = carry_out(prepare(RunRequest(scenario=_scenario(text, 4), engine="sim", out=bench.scratch("bytes"))))
        per_step = result.document["payload_bytes_total"] / result.document["steps_committed"]
        found.append(
            figure(
                f"shards.bytes_per_step.{name}", [per_step], "B", note="activations, 2 cuts; gradients go back dense"
            )
        )
    return found


def _intervals_us(bench: Bench, scenario: Scenario, engine: str) -> list[float]:
    watch = Stopwatch(clock=time.process_time if engine == "sim" else time.perf_counter)  # the simulator is one process
    prepared = prepare(RunRequest(scenario=scenario, engine=engine, out=bench.scratch("shards")))
    result = carry_out(replace(prepared, plan=replace(prepared.plan, verifier=False)), watch)
    if result.document["stop_condition"] != "finished":
        raise EngineError(f"a measured run of shards ended by {result.document['stop_condition']}; see {result.folder}")
    times = [seen.at_s for seen in watch.commits][1:-1]  # the first step warms up, the last one is evaluated
    return [1e6 * (after - before) for before, after in itertools.pairwise(times)]


def _central(bench: Bench, scenario: Scenario, steps: int, threads: int, *more: str) -> tuple[list[float], int]:
    path = bench.scratch("central").with_suffix(".yaml")
    path.write_text(scenario_yaml(scenario))
    command = [sys.executable, "-m", "testbed.bench.central_step", str(path), str(steps), *more]
    environment = {**os.environ, **dict.fromkeys(BLAS_THREAD_SETTINGS, str(threads))}
    root = Path(__file__).resolve().parents[2]
    done = subprocess.run(
        command, capture_output=True, text=True, timeout=CENTRAL_TIMEOUT_S, check=False, env=environment, cwd=root
    )
    if done.returncode != 0:
        raise EngineError(f"central training ended with code {done.returncode}:\n{done.stderr[-1000:].strip()}")
    told = json.loads(done.stdout)
    return told["us"][1:], told["elements"]


def _scenario(text: str, steps: int) -> Scenario:
    parsed = parse_scenario(text, "bench")
    training = parsed.training.model_copy(update={"steps": steps, "evaluate_every": steps, "checkpoint_every": steps})
    return parsed.model_copy(update={"training": training})


def _measure_codec(bench: Bench) -> list[Figure]:
    turns = 20 if bench.quick else 100
    bench.say(f"boundary codec at top{KEEP_PERCENT}/{BITS}-bit, {turns} turns")
    values = np.random.default_rng(1).standard_normal(BOUNDARY)
    payload = encode(values, KEEP_PERCENT, BITS)
    encode_rate, decode_rate = list[float](), list[float]()
    for _ in range(turns):
        began_s = time.process_time()
        encode(values, KEEP_PERCENT, BITS)
        encoded_s = time.process_time()
        decode(payload, BOUNDARY)
        encode_rate.append(values.nbytes / 1e6 / (encoded_s - began_s))
        decode_rate.append(values.nbytes / 1e6 / (time.process_time() - encoded_s))
    size = payload_bytes(BOUNDARY, KEEP_PERCENT, BITS)
    note = f"float64 input of {values.nbytes / 1e6:.1f} MB, {size} bytes encoded"
    return [
        figure("codec.encode", encode_rate, "MB/s per core", goal=Goal("at_least", 500.0), note=note),
        figure("codec.decode", decode_rate, "MB/s per core", goal=Goal("at_least", 1500.0), note=note),
    ]


STEPS = Family(
    "shards",
    "Steps of layer-sharded training, nothing checked, beside the same model in one process",
    _measure_steps,
    ("pipelined: two shards in processes, one BLAS thread each; central: the same micro-batches in one process",),
)
CODEC = Family("codec", f"Boundary codec at top{KEEP_PERCENT}/{BITS}-bit, one core", _measure_codec)
