"""The exchange: ring and server in processes, beside torch's gloo, and beside a plain gRPC stream of the same bytes."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Sequence

from testbed.bench.crew import run_crew
from testbed.bench.exchange_role import FACTORY, WARM_UP_TURNS, default_chunk_elements
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, Peer, figure, times_as_fast, times_the_cost
from testbed.bench.raw_stream import measure_raw
from testbed.bench.sizes import MB8, MB64, REDUCED, Size
from testbed.bench.torch_peer import NOT_FOUND
from testbed.engines.base import EngineError

TIMEOUT_S = 240.0
STRATEGIES = ("ring", "ps")
_TURNS = {"288B": 150, "33KB": 150, "512KB": 40, "8MB": 8, "64MB": 3}
_TURNS_QUICK = {"288B": 150, "33KB": 150, "512KB": 30, "8MB": 6}

Samples = dict[str, list[float]]  # microseconds by size label


class _Round:
    """What is measured in turn, at which sizes, and what came out so far."""

    def __init__(self, bench: Bench, workers: int) -> None:
        self.bench = bench
        self.workers = workers
        self.turns = _TURNS_QUICK if bench.quick else _TURNS
        self.sizes = [size for size in REDUCED if size.label in self.turns]
        self.ours: dict[str, Samples] = {strategy: defaultdict(list) for strategy in STRATEGIES}
        self.gloo: Samples = defaultdict(list)
        self.raw: Samples = defaultdict(list)

    def run(self) -> None:
        """Each of them once."""
        self._ours("ring")
        self._gloo()
        self._ours("ps")
        self._raw()

    def _ours(self, strategy: str) -> None:
        workers = [f"worker-{worker}" for worker in range(1, self.workers + 1)]
        settings = {
            "strategy": strategy,
            "workers": self.workers,
            "plan": [(size.elements, self.turns[size.label]) for size in self.sizes],
            "chunk_elements": default_chunk_elements(),
        }
        roles = [*workers, "server"] if strategy == "ps" else workers
        results = run_crew(roles, FACTORY, settings, self.bench.scratch("exchange"), TIMEOUT_S)
        for place, size in enumerate(self.sizes):
            if len({results[worker]["digests"][place] for worker in workers}) != 1:
                raise EngineError(f"{strategy} all-reduce of {size.label}: the workers hold different values")
            took_ms = results[workers[0]]["ms"][place][WARM_UP_TURNS:]
            self.ours[strategy][size.label] += [1e3 * ms for ms in took_ms]

    def _gloo(self) -> None:
        if self.bench.torch is None:
            return
        plan = [[size.size_bytes, self.turns[size.label]] for size in self.sizes]
        lines = self.bench.torch.run("gloo_all_reduce.py", str(self.workers), json.dumps(plan), timeout_s=TIMEOUT_S)
        for size, line in zip(self.sizes, lines, strict=True):
            self.gloo[size.label] += line["us"]

    def _raw(self) -> None:
        plan = [(size.size_bytes, self.turns[size.label]) for size in self.sizes]
        for size, took_us in zip(self.sizes, measure_raw(plan, TIMEOUT_S), strict=True):
            self.raw[size.label] += took_us


def _measure(bench: Bench) -> list[Figure]:
    figures: list[Figure] = []
    for workers in (4,) if bench.quick else (2, 4):
        turn = _Round(bench, workers)
        for number in (1,) if bench.quick else (1, 2):
            bench.say(f"all-reduce of {workers} workers, round {number}: ring, gloo, server, plain gRPC")
            turn.run()
        for size in turn.sizes:
            for strategy in STRATEGIES:
                figures += _figures(turn, strategy, size)
    return figures


def _figures(turn: _Round, strategy: str, size: Size) -> list[Figure]:
    name = f"all_reduce.{strategy}.{turn.workers}w.{size.label}"
    own_us, torch = turn.ours[strategy][size.label], turn.bench.torch
    found = [figure(name, own_us, "us", note="" if torch is not None else NOT_FOUND)]
    if torch is not None:
        gloo = Peer(f"torch {torch.version} gloo all_reduce", turn.gloo[size.label], "us")
        goal = Goal("at_least", 0.6 if size in (MB8, MB64) else 1.0)
        found.append(times_as_fast(f"{name}.speed_to_gloo", own_us, gloo, goal=goal))
    raw = Peer("one plain gRPC stream", _per_byte(turn.raw[size.label], size.size_bytes), "ns/B")
    own_ns = _per_byte(own_us, moved_bytes(strategy, turn.workers, size.size_bytes))
    found.append(times_the_cost(f"{name}.cost_per_byte_to_grpc", own_ns, raw, goal=Goal("at_most", 1.5)))
    return found


def moved_bytes(strategy: str, workers: int, size_bytes: int) -> int:
    """Payload over all links of one all-reduce: chain and lap of the ring, push and publish of the server."""
    return 2 * size_bytes * (workers - 1 if strategy == "ring" else workers)


def _per_byte(took_us: Sequence[float], size_bytes: int) -> list[float]:
    return [1e3 * us / size_bytes for us in took_us]


FAMILY = Family(
    "all-reduce",
    "All-reduce of one float64 array, in processes over the production links",
    _measure,
    (
        "worker 1's time from one finished value to the next, as rank 0's of a loop of all_reduce calls",
        "checksums, digests and the fixed order of the sum are part of ours; gloo has none of them",
        "bytes moved: 2(n-1) times the array for the ring, 2n times for the server; plain gRPC: one way of a stream",
    ),
)
