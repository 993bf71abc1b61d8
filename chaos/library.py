"""The scenarios that come with Gradstorm. The one module of `chaos` that reads anything: its own package's data."""

from __future__ import annotations

from functools import cache
from importlib.resources import files

from chaos.fault_kinds.base import nearest
from chaos.scenario import Scenario, ScenarioError, parse_scenario

_FOLDER = files("chaos") / "scenarios"


@cache
def scenario_names() -> tuple[str, ...]:
    """Names of all packaged scenarios, ascending."""
    return tuple(sorted(item.name.removesuffix(".yaml") for item in _FOLDER.iterdir() if item.name.endswith(".yaml")))


def scenario_text(name: str) -> str:
    """The YAML of a packaged scenario. Raises ScenarioError with the nearest name when there is none."""
    if name not in scenario_names():
        raise ScenarioError([f"no scenario is called {name!r}{nearest(name, scenario_names())}"])
    return (_FOLDER / f"{name}.yaml").read_text(encoding="utf-8")


def load_scenario(name: str) -> Scenario:
    """A packaged scenario. Raises ScenarioError with the nearest name when there is none."""
    return parse_scenario(scenario_text(name), f"{name}.yaml")
