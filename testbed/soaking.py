"""A soak: one long, disturbed run, and what to look at afterwards."""

from __future__ import annotations

import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from chaos.fault_kinds.links import LinkFault
from chaos.faults import cannot
from chaos.scenario import Scenario
from chaos.soaking import soak_scenario
from services.events import COORDINATOR, DRIVER, SERVER, VERIFIER
from services.records import Committed, Fact, FaultUndone
from testbed.api import run
from testbed.engines import engine_named
from testbed.engines.base import EngineError, Silent
from testbed.usage import Growth, UsageWatch

Say = Callable[[str], None]

LONG_LIVED = (COORDINATOR, SERVER, VERIFIER)
_PACE_FAULTS = 6
_TOLD_EVERY = 10


@dataclass(frozen=True, slots=True)
class Soaked:
    """What a soak came to. `complaints` is empty when all is as it must be."""

    document: dict[str, Any]
    planned: int
    undone: int
    kinds: str
    longest_pause_s: float
    equality: str
    growth: tuple[Growth, ...]
    complaints: tuple[str, ...]


def schedule(seed: int, faults: int, engine: str, strategy: str) -> Scenario:
    """With partitions where the engine can do them."""
    scenario = soak_scenario(seed, faults, engine, partitions=True)
    return soak_scenario(seed, faults, engine, partitions=False) if _no_links(scenario, engine, strategy) else scenario


def pace_s(seed: int, engine: str, strategy: str, say: Say) -> float:
    """Seconds that one fault takes here, the steps up to it included; a few of them are tried."""
    say(f"{_PACE_FAULTS} faults, to see how long one takes here …")
    with tempfile.TemporaryDirectory(prefix="gradstorm-soak-") as home:
        pace = _Pace(say)
        result = run(
            schedule(seed, _PACE_FAULTS, engine, strategy),
            engine,
            strategy=strategy,
            out=Path(home) / "run",
            progress=pace,
        )
    if not result.passed:
        raise EngineError(f"the short run came out {result.verdict}: {'; '.join(result.document['reasons'])}")
    return max(0.05, (pace.last_s - pace.first_s) / _PACE_FAULTS)


def soaked(seed: int, faults: int, engine: str, strategy: str, folder: Path, say: Say) -> Soaked:
    """Run it, watched."""
    scenario = schedule(seed, faults, engine, strategy)
    pace = _Pace(say, len(scenario.faults))
    watch = UsageWatch(engine, folder, LONG_LIVED if engine != "sim" else ())
    with watch:
        document = run(scenario, engine, strategy=strategy, out=folder, progress=pace).document
    expected = document["params_sha256"] if engine == "sim" else _simulated_sha256(scenario, strategy)
    growth = tuple(watch.growth())
    undone = sum(fault["state"] == "undone" for fault in document["faults"])
    equal = document["params_sha256"] == expected
    kinds = Counter(fault["kind"] for fault in document["faults"] if fault["state"] == "undone")
    return Soaked(
        document,
        len(scenario.faults),
        undone,
        ", ".join(f"{count} {kind}" for kind, count in sorted(kinds.items())),
        pace.longest_s,
        "as in the simulator" if equal else f"not the simulator's {expected[:12]}",
        growth,
        tuple(_complaints(document, len(scenario.faults), undone, equal, watch)),
    )


def _complaints(document: dict[str, Any], planned: int, undone: int, equal: bool, watch: UsageWatch) -> list[str]:
    found = [*document["reasons"], *filter(None, [document["aborted"]])] if document["verdict"] != "pass" else []
    if undone != planned:
        missed = [
            f"{fault['fault']} {fault.get('reason', '')}" for fault in document["faults"] if fault["state"] != "undone"
        ]
        found.append(f"{planned - undone} faults did not act as planned: {'; '.join(missed[:3])}")
    samples = document["samples"]
    if samples["lost"] or samples["repeated"]:
        found.append(f"{samples['lost']} samples lost, {samples['repeated']} repeated")
    if not equal:
        found.append("the parameters are not the simulator's")
    found += [f"{one.role} grows" for one in watch.growth() if one.grows]
    unseen = sorted({COORDINATOR, VERIFIER} & set(watch.roles) - {one.role for one in watch.growth()})
    if unseen:
        found.append(f"too few looks at {', '.join(unseen)} to say whether they grow {watch.trouble}".rstrip())
    return found


def _simulated_sha256(scenario: Scenario, strategy: str) -> str:
    able = scenario.model_copy(update={"engines": ["sim"]})
    with tempfile.TemporaryDirectory(prefix="gradstorm-soak-") as home:
        return str(run(able, "sim", strategy=strategy, out=Path(home) / "run").document["params_sha256"])


def _no_links(scenario: Scenario, engine: str, strategy: str) -> bool:
    """Whether the engine refuses faults of links here (local without Toxiproxy)."""
    links = any(isinstance(fault, LinkFault) and cannot(fault, engine) for fault in scenario.faults)
    return links and bool(engine_named(engine).refusals(scenario, strategy))


@dataclass(slots=True)
class _Pace(Silent):
    """Times of commits and undone faults, and a line now and then."""

    say: Say
    planned: int = 0
    first_s: float = 0.0
    last_s: float = 0.0
    longest_s: float = 0.0
    step: int = 0
    undone: set[str] = field(default_factory=set)

    def fact(self, role: str, fact: Fact) -> None:
        if role == COORDINATOR and isinstance(fact, Committed):
            now_s = time.monotonic()
            self.first_s = self.first_s or now_s
            self.longest_s = max(self.longest_s, now_s - (self.last_s or now_s))
            self.last_s, self.step = now_s, fact.step
        elif role == DRIVER and isinstance(fact, FaultUndone):
            self.undone.add(fact.fault)
            if self.planned and len(self.undone) % _TOLD_EVERY == 0:
                self.say(
                    f"{self.last_s - self.first_s:5.0f} s: step {self.step},"
                    f" {len(self.undone)} of {self.planned} faults done"
                )
