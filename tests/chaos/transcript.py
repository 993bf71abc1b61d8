"""Driver transcripts: one line per event, its actions indented below, short enough to read and compare whole."""

from __future__ import annotations

from dataclasses import fields, is_dataclass
from typing import Any

from chaos.actions import (
    Action,
    ArmHold,
    DriverEvent,
    RoleExited,
    RoleLaunched,
    RoleObserved,
    RoleStood,
    RunBegan,
    Tell,
)
from chaos.driver import Driver
from chaos.scenario import Scenario, parse_scenario
from services.config import Strategy
from services.records import Closed, Fact, Opened

LONG = {"config_json", "sampler_json", "parameters_digest", "velocity_digest", "deals", "remaining"}


def scenario_of(faults: str, head: str = "") -> Scenario:
    """A scenario with these faults (YAML, without indentation of the list) and otherwise the defaults."""
    return parse_scenario(f"name: example\ntitle: An example\n{head}\nfaults:\n{faults}", "example.yaml")


class Play:
    """A driver, fed by hand; `text` collects what happened."""

    def __init__(self, scenario: Scenario, strategy: Strategy = "ring", *, begun: bool = True) -> None:
        self.driver = Driver(scenario, strategy)
        self.lines: list[str] = []
        self.launches: dict[str, int] = {}
        if begun:
            self.feed(0, RunBegan())
            server = ["server"] if strategy == "ps" else []
            workers = [f"worker-{worker}" for worker in range(1, scenario.training.workers + 1)]
            for role in ["verifier", "coordinator", *server, *workers]:
                self.launch(1, role)

    def feed(self, now_ms: float, event: DriverEvent) -> list[Action]:
        """One event; returns the actions."""
        actions = self.driver.handle(now_ms, event)
        self.lines.append(f"{now_ms:g} {short(event)}")
        self.lines += [f"  {short(action)}" for action in actions]
        return actions

    def launch(self, now_ms: float, role: str) -> list[Action]:
        self.launches[role] = self.launches.get(role, 0) + 1
        return self.feed(now_ms, RoleLaunched(role, self.launches[role]))

    def exit(self, now_ms: float, role: str, code: int = -9) -> list[Action]:
        return self.feed(now_ms, RoleExited(role, self.launches[role], code))

    def stand(self, now_ms: float, role: str, point: str) -> list[Action]:
        return self.feed(now_ms, RoleStood(role, f"{role}.{point}"))

    def fact(self, now_ms: float, fact: Fact) -> list[Action]:
        return self.feed(now_ms, RoleObserved("coordinator", fact))

    def opened(self, now_ms: float, step: int) -> list[Action]:
        return self.fact(now_ms, Opened(step, 1, 0, {}, 0))

    def closed(self, now_ms: float, step: int, left_out: tuple[tuple[int, str], ...] = ()) -> list[Action]:
        return self.fact(now_ms, Closed(step, 1, 0, (), 0, left_out))

    def clear(self) -> None:
        """Forget what was said so far."""
        self.lines = []

    @property
    def text(self) -> str:
        return "\n".join(self.lines) + "\n"


def short(value: Any) -> str:
    """A dataclass on one line, without what is by default or long."""
    if isinstance(value, ArmHold):
        return f"ArmHold {value.hold.name}"
    if isinstance(value, Tell):
        return f"Tell {short(value.fact)}"
    if isinstance(value, RoleObserved):
        return f"{value.role}: {short(value.fact)}"
    if is_dataclass(value):
        shown = [getattr(value, field.name) for field in fields(value) if field.name not in LONG]
        return " ".join(
            [type(value).__name__, *(str(item) for item in shown if item is not False and item not in ((), {}, ""))]
        )
    return str(value)
