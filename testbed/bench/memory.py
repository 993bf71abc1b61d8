"""How much each role's memory grows in a long run, after its first tenth.

Processes: resident memory, as the system counts it. The simulator has all roles in one process, and its disk too, so
there each role's object is walked: everything that can be reached from it is counted once.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from types import BuiltinFunctionType, FunctionType, ModuleType
from typing import Any

import numpy as np
import psutil

from services.host import Host
from services.records import Committed, Fact
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, figure
from testbed.bench.local_run import Stopwatch, carry_out_measured, training
from testbed.bench.sizes import B288
from training.errors import ConfigurationError

WORKERS = 4
GOAL = Goal("at_most", 20.0)
DRIVER_PROCESS = "driver"
SIMULATOR_PROCESS = "simulator"  # not a role: its disk, with the history, is in its memory
_MIB = 1024.0 * 1024.0
_STEPS = {"sim": 10_000, "local": 1_000}
_STEPS_QUICK = {"sim": 1_000, "local": 200}
_SHARED = (type, ModuleType, FunctionType, BuiltinFunctionType)

Sizes = dict[str, float]


class Sampler(Stopwatch):
    """Takes every role's size after each tenth of the steps."""

    def __init__(self, steps: int, sizes: Callable[[], Sizes]) -> None:
        super().__init__()
        self._tenth = max(1, steps // 10)
        self._sizes = sizes
        self.taken: list[Sizes] = []

    def fact(self, role: str, fact: Fact) -> None:
        """Told of every fact, as it is made."""
        super().fact(role, fact)
        if isinstance(fact, Committed) and fact.step % self._tenth == 0:
            self.taken.append(self._sizes())

    def growth(self) -> Sizes:
        """Role -> MiB that its largest size lies above that after the first tenth."""
        first, *later = self.taken
        return {role: max(0.0, *(sizes.get(role, 0.0) - size for sizes in later)) for role, size in first.items()}


def resident() -> Sizes:
    """Role -> MiB of its process; the driver is this one."""
    found = {DRIVER_PROCESS: psutil.Process().memory_info().rss / _MIB}
    for process in psutil.Process().children(recursive=True):
        try:
            words = process.cmdline()
            if "services.shell" in words:
                found[words[words.index("services.shell") + 1]] = process.memory_info().rss / _MIB
        except psutil.Error:
            continue  # gone meanwhile
    return found


def reachable() -> Sizes:
    """Role -> MiB of all that its object holds, of the simulated roles that live in this process."""
    hosts = [thing for thing in gc.get_objects() if isinstance(thing, Host)]
    whole = {SIMULATOR_PROCESS: psutil.Process().memory_info().rss / _MIB}
    return {host.name: held_bytes(host) / _MIB for host in hosts} | whole


def held_bytes(root: object) -> int:
    """Bytes of everything that can be reached from `root`, each thing once; code and classes are left out."""
    seen: set[int] = set()
    stack: list[Any] = [root]
    total = 0
    while stack:
        thing = stack.pop()
        if id(thing) in seen or isinstance(thing, _SHARED):
            continue
        seen.add(id(thing))
        total += sys.getsizeof(thing)
        if isinstance(thing, np.ndarray) and thing.base is not None:
            stack.append(thing.base)
        elif isinstance(thing, memoryview):
            stack.append(thing.obj)
        else:
            stack.extend(gc.get_referents(thing))
    return total


def _measure(bench: Bench) -> list[Figure]:
    found: list[Figure] = []
    for engine, steps in (_STEPS_QUICK if bench.quick else _STEPS).items():
        for strategy in ("ps",) if bench.quick else ("ring", "ps"):
            bench.say(f"memory, {engine}, {strategy}, {steps} steps")
            found += _grown(bench, engine, strategy, steps)
    return found


def _grown(bench: Bench, engine: str, strategy: str, steps: int) -> list[Figure]:
    sampler = Sampler(steps, reachable if engine == "sim" else resident)
    carry_out_measured(bench, training(B288, WORKERS, steps), sampler, engine=engine, strategy=strategy)
    if len(sampler.taken) < 2:
        raise ConfigurationError(f"{steps} steps are too few to see memory grow")
    name = f"memory.{engine}.{strategy}.{steps}_steps"
    growth = sampler.growth()
    return [_figure(f"{name}.{role}", role, growth[role], sampler.taken[-1].get(role, 0.0)) for role in sorted(growth)]


def _figure(name: str, role: str, grown: float, at_end: float) -> Figure:
    goal = None if role == SIMULATOR_PROCESS else GOAL
    disk = "; its disk is in its memory, and no role's" if goal is None else ""
    return figure(name, [grown], "MiB grown", goal=goal, note=f"{at_end:.1f} MiB at the end{disk}")


FAMILY = Family(
    "memory",
    "Growth of each role's memory after the first tenth of a run",
    _measure,
    (
        "4 workers, 288 B, scenario clean; the largest of nine samples less the one after the first tenth",
        "local: resident memory of the process; sim: all that can be reached from the role's object",
    ),
)
