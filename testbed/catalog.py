"""Where scenarios are found: the named ones that ship with Gradstorm, and a user's own YAML files."""

from __future__ import annotations

from pathlib import Path

from chaos.library import load_scenario, scenario_names
from chaos.scenario import Scenario, ScenarioError, parse_scenario
from testbed.places import read_file

_SUFFIXES = (".yaml", ".yml")


def find_scenario(name_or_file: str) -> Scenario:
    """A scenario by name, or from a file whose name ends in .yaml or .yml. Raises ConfigurationError."""
    if not name_or_file.endswith(_SUFFIXES):
        return load_scenario(name_or_file)
    try:
        text = read_file(Path(name_or_file), "the scenario").decode()
    except UnicodeDecodeError as error:
        raise ScenarioError([f"{name_or_file}: not UTF-8 text: {error}"]) from error
    return parse_scenario(text, name_or_file)


def all_scenarios() -> list[Scenario]:
    """Every scenario that ships, by name."""
    return [load_scenario(name) for name in scenario_names()]
