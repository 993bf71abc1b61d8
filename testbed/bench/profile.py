"""Where the time of a step and of an all-reduce goes: processor time of every role, beside what its parts cost alone.

Parts are timed in the same run: a message of that size through plain gRPC (processor time of both ends), and the
computations of a step, each alone in one process. What is left is the roles, the shell, and waking each other up.
"""

from __future__ import annotations

import resource
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import psutil

from services.codec import decode, encode
from services.config import RunConfig
from services.exchange import Attempt, RingExchange
from services.jobs import ApplyJob, GradientJob, State
from services.messages import Part, Share
from services.records import Committed, Fact
from testbed.bench.exchange_role import default_chunk_elements
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, figure
from testbed.bench.local_run import BATCH, Stopwatch, carry_out_measured, training
from testbed.bench.raw_stream import measure_raw
from testbed.bench.simulated_profile import simulated_shares
from testbed.bench.sizes import B288, KB33, KB512, MB8, Size
from testbed.engines.base import EngineError
from testbed.planning import RunRequest, prepare
from training.dataset import dataset_from_bytes
from training.models import initial_parameters
from training.reduction import chunk_bounds

WORKERS = 4
CONTROL_MESSAGES = 6 * WORKERS  # open, offer, close, ready, commit, applied, with each worker
_STEPS = {"288B": 300, "33KB": 250, "512KB": 100, "8MB": 30}
_STEPS_QUICK = {"288B": 150, "33KB": 100}
_TIMEOUT_S = 300.0
_REPEATS = 20


class RoleClocks(Stopwatch):
    """Processor time of every role between two steps of a run, as the system counts it."""

    def __init__(self, first: int, last: int) -> None:
        super().__init__()
        self._first, self._last = first, last
        self._at: dict[int, tuple[float, dict[str, float]]] = {}

    def fact(self, role: str, fact: Fact) -> None:
        """Told of every fact, as it is made."""
        super().fact(role, fact)
        if isinstance(fact, Committed) and fact.step in (self._first, self._last):
            self._at[fact.step] = time.perf_counter(), _role_seconds()

    def per_step(self) -> tuple[float, dict[str, float]]:
        """Seconds of the clock, and role -> seconds of a processor, per step. Raises EngineError."""
        if len(self._at) < 2:
            raise EngineError(f"steps {self._first} and {self._last} were not both seen")
        (began_s, before), (ended_s, after) = self._at[self._first], self._at[self._last]
        steps = self._last - self._first
        used = {role: (seconds - before.get(role, 0.0)) / steps for role, seconds in after.items()}
        return (ended_s - began_s) / steps, used


@dataclass(frozen=True, slots=True)
class Parts:
    """Microseconds of a processor for each part of one step of four workers."""

    grpc: float
    computing: float
    exchange: float
    roles: float


def _role_seconds() -> dict[str, float]:
    found = {"driver": _seconds(psutil.Process())}
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
            if "services.shell" in words:
                found[words[words.index("services.shell") + 1]] = _seconds(process)
        except psutil.Error:
            continue  # gone meanwhile
    return found


def _seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


def _measure(bench: Bench) -> list[Figure]:
    steps = _STEPS_QUICK if bench.quick else _STEPS
    found: list[Figure] = []
    for size in (B288, KB33, KB512, MB8):
        if size.label in steps:
            bench.say(f"where the time of a step goes at {size.label}")
            found += _of_a_step(bench, size, steps[size.label])
    bench.say("where the time of a simulated step goes")
    return found + simulated_shares(bench)


def _of_a_step(bench: Bench, size: Size, steps: int) -> list[Figure]:
    clocks = RoleClocks(steps // 10, steps)
    carry_out_measured(bench, training(size, WORKERS, steps), clocks, strategy="ring")
    wall_s, used = clocks.per_step()
    parts = _parts(bench, size)
    workers = [seconds for role, seconds in used.items() if role.startswith("worker-")]
    total_us = 1e6 * sum(used.values())
    name = f"profile.{size.label}"
    known = parts.grpc + parts.computing + parts.exchange + parts.roles
    busy = psutil.cpu_count() or 1
    rows = [
        ("clock", 1e6 * wall_s, f"one step by the clock; {busy} cores have {1e6 * busy * wall_s:,.0f} us in it"),
        ("all_roles", total_us, "processor time of all roles and the driver"),
        (
            "coordinator",
            1e6 * used.get("coordinator", 0.0),
            "24 messages, and 3 decisions synced to the disk",
        ),
        ("workers", 1e6 * sum(workers), f"all {WORKERS} together"),
        ("verifier", 1e6 * used.get("verifier", 0.0), "stores and judges every record"),
        ("driver", 1e6 * used.get("driver", 0.0), "this process: watches the run"),
        ("part.grpc", parts.grpc, f"its {_messages(size)} messages, each through a plain gRPC stream"),
        ("part.computing", parts.computing, f"{WORKERS} gradients and optimizer steps, digests included"),
        ("part.exchange", parts.exchange, "encoding, CRC, decoding, sum and digest of every chunk"),
        (
            "part.roles",
            parts.roles,
            "roles, records and judge as the simulator drives them, without the above",
        ),
        ("part.rest", total_us - known, "event loops, threads, tasks, heartbeats, and waking up with cold caches"),
    ]
    return [figure(f"{name}.{what}", [value], "us/step", note=note) for what, value, note in rows]


def _messages(size: Size) -> int:
    return CONTROL_MESSAGES + 2 * (WORKERS - 1) * len(chunk_bounds(size.elements, default_chunk_elements()))


def _parts(bench: Bench, size: Size) -> Parts:
    chunks = 2 * (WORKERS - 1) * len(chunk_bounds(size.elements, default_chunk_elements()))
    chunk_bytes = min(size.size_bytes, 8 * default_chunk_elements())
    small_us = _turn_us(B288.size_bytes) / 3  # a turn is a small message that announces it, then there and back
    chunk_us = small_us if size is B288 else (_turn_us(chunk_bytes) - small_us) / 2
    grpc_us = CONTROL_MESSAGES * small_us + chunks * chunk_us
    computing_us, reducing_us = WORKERS * _computing_us(bench, size), exchange_us(size.elements)
    return Parts(grpc_us, computing_us, reducing_us, max(0.0, _simulated_us(bench, size) - computing_us - reducing_us))


def _turn_us(size_bytes: int) -> float:
    """Processor time of both ends for a turn of the plain stream: what many of them take less what few do."""
    few, many = 10, max(40, min(2000, 40_000_000 // size_bytes))

    def used_s(turns: int) -> float:
        before = resource.getrusage(resource.RUSAGE_CHILDREN)
        measure_raw([(size_bytes, turns)], _TIMEOUT_S)
        after = resource.getrusage(resource.RUSAGE_CHILDREN)
        return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime

    return max(0.0, 1e6 * (used_s(many) - used_s(few)) / (many - few))


def _computing_us(bench: Bench, size: Size) -> float:
    request = RunRequest(
        scenario=training(size, WORKERS, 20), engine="local", strategy="ring", out=bench.scratch("computed")
    )
    plan = prepare(request).plan
    assert isinstance(plan.config, RunConfig)
    dataset = dataset_from_bytes(plan.data, plan.config.dataset_sha256)
    parameters = initial_parameters(plan.config.model, plan.config.seed)
    job = GradientJob(plan.config.model, dataset, parameters, tuple(range(BATCH)))
    apply = ApplyJob(plan.config.optimizer, State.of(parameters, np.zeros_like(parameters)), job().value)
    return _median_us(job) + _median_us(apply)


def _simulated_us(bench: Bench, size: Size) -> float:
    """Processor time of a step of the same training in the simulator, verdict included: long runs less short ones."""

    def used_s(steps: int) -> float:
        began_s = time.process_time()
        carry_out_measured(bench, training(size, WORKERS, steps), Stopwatch(), engine="sim", strategy="ring")
        return time.process_time() - began_s

    few, many = 10, 20 if size is MB8 else 110
    return 1e6 * (used_s(many) - used_s(few)) / (many - few)


def exchange_us(elements: int) -> float:
    """One all-reduce of the ring with everything but the wire: all parts encoded, decoded, summed, digested."""
    shares = tuple(Share(worker, 1, 1) for worker in range(1, WORKERS + 1))
    attempt = Attempt(1, 1, 0, shares, WORKERS, elements, default_chunk_elements())
    gradient = np.random.default_rng(1).standard_normal(elements)

    def once() -> None:
        rings = {worker: RingExchange(attempt, worker, gradient) for worker in attempt.workers}
        waiting = [send for ring in rings.values() for send in ring.begin() if send is not None]
        while waiting:
            to, part = waiting.pop()
            arrived = decode(encode(part))
            assert isinstance(arrived, Part)
            waiting += [send for send in rings[to].take(arrived) if send is not None]

    return _median_us(once)


def _median_us(action: Callable[[], object]) -> float:
    took: list[float] = []
    for _ in range(_REPEATS):
        began_s = time.process_time()
        action()
        took.append(1e6 * (time.process_time() - began_s))
    return _median(took)


def _median(values: Sequence[float]) -> float:
    return float(np.median(values))


FAMILY = Family(
    "profile",
    "Where the time of a training step goes (ring, 4 workers, verifier on), and that of a simulated one",
    _measure,
    (
        "roles: processor time of their processes from the tenth part of the run to its end, background included",
        "parts: each measured alone and warm; in a run their data and code have to come back into the caches",
        "simulator: shares under Python's profiler, which makes many small calls look dearer than they are",
    ),
)
