"""Everything that is measured, in order, one at a time."""

from __future__ import annotations

import difflib
import tempfile
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from testbed.api import one_blas_thread
from testbed.bench import all_reduce, containers, memory, modelled, profile, recovery, shards, simulator, steps
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure
from testbed.bench.machine import LoadWatch, alone
from testbed.bench.torch_peer import NOT_FOUND, find_torch
from training.errors import ConfigurationError

FAMILIES: tuple[Family, ...] = (
    simulator.FAMILY, steps.STEPS, recovery.FAMILY, all_reduce.FAMILY, steps.SPEED_UP, shards.STEPS, shards.CODEC,
    memory.FAMILY, profile.FAMILY, modelled.FAMILY,
)  # fmt: skip

CONTAINERS: tuple[Family, ...] = (containers.UP, containers.STEPS, containers.RECOVERY, containers.FAULTS)
OF_ENGINE = {"local": FAMILIES, "containers": CONTAINERS}


def chosen(names: Sequence[str], engine: str = "local") -> list[Family]:
    """The families of these names, all of that engine's for none. Raises ConfigurationError with the nearest name."""
    if engine not in OF_ENGINE:
        raise ConfigurationError(f"no figures of engine {engine!r}; choose one of: {', '.join(OF_ENGINE)}")
    families = OF_ENGINE[engine]
    known = {family.name: family for family in families}
    for name in names:
        if name not in known:
            close = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(known)}"
            raise ConfigurationError(f"no figures are called {name!r}; {hint}")
    return [family for family in families if not names or family.name in names]


def measure(
    families: Sequence[Family], *, quick: bool, say: Callable[[str], None]
) -> Iterator[tuple[Family, list[Figure]]]:  # fmt: skip
    """One family after the other, each figure with the load beside it. Raises EngineError, ConfigurationError."""
    with alone(), one_blas_thread(), tempfile.TemporaryDirectory(prefix="gradstorm-bench-") as folder:
        torch = find_torch()
        say(NOT_FOUND if torch is None else f"peer: torch {torch.version} of {torch.python} {torch.slow_blas}".rstrip())
        bench = Bench(quick, torch, Path(folder), say)
        for family in families:
            watch = LoadWatch()
            figures = family.measure(bench)
            load = watch.told()
            yield family, [one.under(load) for one in figures]
