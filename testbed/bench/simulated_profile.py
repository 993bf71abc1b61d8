"""Where the time of a simulated step goes, by part of the code: shares of a run under Python's own profiler.

What C code takes is counted where it was called from. The profiler costs something for every call, so parts that make
many small ones look larger than they are.
"""

from __future__ import annotations

import cProfile
import pstats
from collections import defaultdict
from typing import Any

from testbed.bench.family import Bench
from testbed.bench.figures import Figure, figure
from testbed.bench.local_run import Stopwatch, carry_out_measured, training
from testbed.bench.sizes import B288

WORKERS = 4
STEPS = 200
OTHER = "other"
PARTS: tuple[tuple[str, tuple[str, ...]], ...] = (  # the first that a file's path contains
    ("judge", ("services/judg", "services/ledger", "services/lineage", "services/invariants", "services/reference",
               "services/replay", "services/evidence", "services/state_reports", "services/epochs", "autograd")),
    ("records", ("fact_codec", "fact_reading", "canonical_json", "services/history", "decision_log", "/json/")),
    ("world_and_network", ("testbed/engines", "chaos/")),
    ("disk", ("training/disk", "training/checkpoint")),
    ("computing", ("training/", "services/jobs", "numpy")),
    ("host", ("services/host",)),
    ("roles", ("services/",)),
)  # fmt: skip

Place = tuple[str, int, str]


def simulated_shares(bench: Bench) -> list[Figure]:
    """One figure per part, percent of the run."""
    profiler = cProfile.Profile()
    profiler.enable()
    try:
        carry_out_measured(bench, training(B288, WORKERS, STEPS), Stopwatch(), engine="sim", strategy="ring")
    finally:
        profiler.disable()
    statistics: Any = pstats.Stats(profiler)
    shares = shares_of(statistics.stats)
    return [
        figure(f"profile.simulator.{part}", [share], "% of a step", note=", ".join(_files(part)))
        for part, share in sorted(shares.items(), key=lambda item: -item[1])
    ]


def shares_of(stats: dict[Place, tuple[int, int, float, float, dict[Place, tuple[int, int, float, float]]]]) -> dict[
    str, float
]:  # fmt: skip
    """Part -> percent, from what the profiler counted: own time of Python code, and of C code by its callers."""
    seconds: dict[str, float] = defaultdict(float)
    for (path, _, _), (_, _, own_s, _, callers) in stats.items():
        if path != "~" or not callers:
            seconds[part_of(path)] += own_s
            continue
        for (caller, _, _), (_, _, called_s, _) in callers.items():
            seconds[part_of(caller)] += called_s
    whole_s = sum(seconds.values())
    return {part: 100.0 * part_s / whole_s for part, part_s in seconds.items()} if whole_s else {}


def part_of(path: str) -> str:
    """Which part of the code a file belongs to."""
    for part, marks in PARTS:
        if any(mark in path for mark in marks):
            return part
    return OTHER


def _files(part: str) -> tuple[str, ...]:
    return dict(PARTS).get(part, ("the library, the bench, what has no file",))
