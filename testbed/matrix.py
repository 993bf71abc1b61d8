"""Scenarios times strategies on one engine: each run judged, and compared bit for bit with the simulator where it can.

    for cell in run_cells(cells(names, "both"), "containers", folder): …

A fixed scenario means the same on every engine, so the hash of its final parameters has to be the simulator's. One
that follows a clock has no such number; there the measured effects of its faults are what there is to see.
"""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.fault_kinds.connections import ProxyFault
from chaos.scenario import Scenario
from services.any_config import AnyStrategy
from testbed.api import run
from testbed.catalog import all_scenarios, find_scenario
from testbed.engines import engine_named
from testbed.engines.base import EngineError
from testbed.run_folder import RunFolderError
from testbed.run_lines import first_trouble
from training.errors import ConfigurationError, GradstormError

CRASHED = "crashed"  # the engine gave up, or broke
PARALLEL: tuple[AnyStrategy, ...] = ("ring", "ps")
_FAILED = (GradstormError, ArithmeticError, AssertionError, AttributeError, LookupError, TypeError, ValueError, OSError)


@dataclass(frozen=True, slots=True)
class Row:
    """What one scenario under one strategy came to."""

    scenario: str
    strategy: str
    verdict: str
    seconds: float
    exit_code: int | None = None
    steps_committed: int = 0
    steps_checked: int = 0
    params_sha256: str = ""
    fixed: bool = True  # a scenario that follows no clock
    expected_sha256: str = ""  # the simulator's, of a fixed scenario
    effects: tuple[str, ...] = ()  # one for each fault
    why: tuple[str, ...] = ()
    folder: str = ""  # where to look; gone after a good run
    error: Exception | None = field(default=None, repr=False)  # of a crash

    @property
    def equality(self) -> str:
        """ "equal" | "differs" | "" where there is nothing to compare with."""
        if not (self.expected_sha256 and self.params_sha256):
            return ""
        return "equal" if self.params_sha256 == self.expected_sha256 else "differs"

    @property
    def good(self) -> bool:
        """It passed, and its parameters are those of the simulator."""
        return self.verdict == "pass" and self.exit_code == 0 and self.equality != "differs"


def cells(names: Sequence[str], engine: str, strategy: str) -> list[tuple[Scenario, AnyStrategy]]:
    """What to run: the named scenarios, or all data-parallel ones that the engine can do, by name.

    `strategy`: "both", "ring", "ps", or "alternate", which takes the two in turn. Named scenarios that the engine
    refuses raise ConfigurationError; without names they are left out.
    """
    able = engine_named(engine)
    found: list[tuple[Scenario, AnyStrategy]] = []
    for number, scenario in enumerate(_chosen(names)):
        wanted = [one for one in PARALLEL if one in scenario.strategies]
        if strategy == "alternate":
            wanted = [wanted[number % len(wanted)]] if wanted else []
        elif strategy != "both":
            wanted = [one for one in wanted if one == strategy]
        for one in wanted:
            refused = able.refusals(scenario, one)
            if refused and names:
                raise ConfigurationError("\n".join(refused))
            if not refused:
                found.append((scenario, one))
    if not found:
        raise ConfigurationError("no scenario is left to run")
    return found


def run_cells(wanted: Sequence[tuple[Scenario, AnyStrategy]], engine: str, folder: Path) -> Iterator[Row]:
    """Run them one after another, each in a folder below `folder` that is kept unless all is well."""
    for number, (scenario, strategy) in enumerate(wanted):
        row = _run_cell(scenario, strategy, engine, folder / f"{scenario.name}-{strategy}")
        if number == 0 and isinstance(row.error, EngineError):
            raise _with_a_way_out(row.error, engine)  # this machine will not do any of them
        yield row


def _with_a_way_out(error: EngineError, engine: str) -> EngineError:
    if engine != "containers":
        return error
    return EngineError(f"{error}; --engine sim and --engine local need no Docker")


def _chosen(names: Sequence[str]) -> list[Scenario]:
    return [find_scenario(name) for name in names] or [one for one in all_scenarios() if not one.sharded]


def _run_cell(scenario: Scenario, strategy: AnyStrategy, engine: str, folder: Path) -> Row:
    began_s = time.monotonic()
    try:
        document = run(scenario, engine, strategy=strategy, out=folder).document
    except _FAILED as error:
        why = (f"{type(error).__name__}: {error}",)
        return Row(
            scenario.name, strategy, CRASHED, time.monotonic() - began_s, why=why, folder=str(folder), error=error
        )
    seconds = time.monotonic() - began_s
    row = Row(
        scenario=scenario.name,
        strategy=strategy,
        verdict=document["verdict"],
        seconds=seconds,
        exit_code=document["exit_code"],
        steps_committed=document["steps_committed"],
        steps_checked=document["steps_checked"],
        fixed=scenario.fixed,
        params_sha256=document["params_sha256"] or "",
        expected_sha256=_simulated_sha256(scenario, strategy) if scenario.fixed and engine != "sim" else "",
        effects=tuple(effect_of(fault) for fault in document["faults"]),
        why=tuple(dict.fromkeys([*document["reasons"], *_broken(document), *filter(None, [document["aborted"]])])),
        folder=str(folder),
    )
    if row.good:
        _remove(folder)
    return row


def _simulated_sha256(scenario: Scenario, strategy: AnyStrategy) -> str:
    """Empty where the simulator cannot do it. What only a proxy can do changes no result, so that it is left out."""
    faults = [fault for fault in scenario.faults if not isinstance(fault, ProxyFault)]
    scenario = scenario.model_copy(update={"faults": faults, "engines": ["sim"]})
    if engine_named("sim").refusals(scenario, strategy):
        return ""
    with tempfile.TemporaryDirectory(prefix="gradstorm-matrix-") as home:
        return str(run(scenario, "sim", strategy=strategy, out=Path(home) / "run").document["params_sha256"])


def _broken(document: dict[str, Any]) -> list[str]:
    found = document["invariants"]
    return [f"{name}: {first_trouble(one)}" for name, one in found.items() if one["verdict"] != "pass"]


def _remove(folder: Path) -> None:
    try:
        shutil.rmtree(folder)
    except OSError as error:
        raise RunFolderError(f"cannot remove {folder}: {error}") from error


# ---------------------------------------------------------------- faults in words

_DURING = ("exit_code", "phase", "step", "left_out", "lost_by", "stopped_ms", "delay_ms", "delay_before_ms",
           "kib_per_s", "silent_ms", "connections", "known_after_ms", "links", "unaffected", "messages")  # fmt: skip
_AFTER = ("delay_after_ms", "proved_after_step", "recovered_at_step", "rolled_back_to", "launch", "not_recovered")


def effect_of(fault: dict[str, Any]) -> str:
    """One line for a fault of a run's document: what was measured of it."""
    if fault["state"] == "missed":
        return f"{fault['fault']}: missed, {fault.get('reason', '')}"
    parts = [*_named(fault["witness"], _DURING), *_named(fault.get("undo", {}), _AFTER)]
    return f"{fault['fault']}: {', '.join(parts) or fault['state']}"


def _named(figures: dict[str, Any], names: Sequence[str]) -> list[str]:
    return [f"{name} {figures[name]}" for name in names if name in figures]
