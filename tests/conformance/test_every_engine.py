"""One body on every engine: what a `fixed` scenario ends with does not depend on engine or strategy.

For each of them: verdict pass, every committed step checked, and one `params_sha256` over engines and strategies,
equal to what one process computes from the recorded contributor sets. Two simulated runs have the same history, byte
for byte. Of two strategies local processes take the one that containers do not (test_container_scenarios.py has them in
turn), and both where GRADSTORM_REQUIRE names matrix.
"""

from __future__ import annotations

import os
from pathlib import Path

import pytest

import testbed
from chaos.library import load_scenario, scenario_names
from chaos.scenario import refusals
from services.any_config import AnyStrategy
from services.records import Committed, RolledBack, RunStarted
from testbed.containers.toxiproxy_process import HOW_TO_GET_ONE, find_toxiproxy
from testbed.history_facts import read_facts
from testbed.matrix import cells
from testbed.planning import dataset_of
from testbed.run_folder import RunFolder
from tests.conformance.replay import replay
from tests.needs import why_no_matrix
from training.digest import array_digest

PARALLEL = [name for name in scenario_names() if not load_scenario(name).sharded]  # the others: test_shards.py
FIXED = [name for name in PARALLEL if load_scenario(name).fixed]
BY_NAME = {name: pytest.param(name, marks=pytest.mark.xdist_group(name)) for name in PARALLEL}  # they share their runs
ENGINES = ["sim", pytest.param("local", marks=pytest.mark.local)]
Key = tuple[str, str, str]

IN_CONTAINERS = {scenario.name: strategy for scenario, strategy in cells([], "containers", "alternate")}


def strategies_on(engine: str, scenario: str) -> list[AnyStrategy]:
    """Those in which it is run there."""
    promised = list(load_scenario(scenario).strategies)
    if engine == "sim" or why_no_matrix() == "":
        return promised
    return [strategy for strategy in promised if strategy != IN_CONTAINERS.get(scenario)] or promised


class Runs:
    """Runs made in this session, each once."""

    def __init__(self, home: Path) -> None:
        self._home = home
        self._made: dict[Key, testbed.RunResult] = {}

    def of(self, scenario: str, engine: str, strategy: str) -> testbed.RunResult:
        """The run of this scenario there; made on first use."""
        key = (scenario, engine, strategy)
        if key not in self._made:
            out = self._home / "-".join(key)
            self._made[key] = testbed.run(scenario, engine, strategy=strategy, out=out)
        return self._made[key]


@pytest.fixture(scope="session")
def runs(tmp_path_factory: pytest.TempPathFactory) -> Runs:
    return Runs(tmp_path_factory.mktemp("runs"))


def replayed_sha256(result: testbed.RunResult) -> str:
    """The parameters as one process computes them from what the history says who contributed."""
    folder = RunFolder(result.folder)
    told = read_facts(folder.history_path, (RunStarted, Committed, RolledBack))
    parameters, _ = replay((one.fact for one in told if one.source == "coordinator"), dataset_of(folder))
    return array_digest(parameters)


@pytest.mark.parametrize("engine", ENGINES)
@pytest.mark.parametrize("scenario", [BY_NAME[name] for name in FIXED])
def test_fixed_scenario(scenario: str, engine: str, runs: Runs) -> None:
    promised = load_scenario(scenario)
    if engine not in promised.engines:
        pytest.skip(f"{scenario} is for {', '.join(promised.engines)}")
    if engine == "local" and find_toxiproxy(os.environ) is None and refusals(promised, "local", promised.strategies[0]):
        pytest.skip(HOW_TO_GET_ONE)
    expected = runs.of(scenario, promised.engines[0], promised.strategies[0]).document["params_sha256"]
    for strategy in strategies_on(engine, scenario):
        result = runs.of(scenario, engine, strategy)
        document = result.document
        told = f"{scenario}, {engine}, {strategy}: {document['reasons']} {document['aborted']} in {result.folder}"
        assert document["verdict"] == "pass", told
        assert int(result.exit_code) == promised.expect.exit_code, told
        assert document["steps_checked"] == document["steps_committed"] == promised.training.steps, told
        assert document["params_sha256"] == expected, told
        assert document["params_sha256"] == replayed_sha256(result), told
        assert all(fault["state"] == "undone" and fault["witness"] for fault in document["faults"]), told
        assert all(one["expected"] for one in document["exits"]), told


@pytest.mark.parametrize("scenario", [BY_NAME[name] for name in PARALLEL if "sim" in load_scenario(name).engines])
def test_two_simulated_runs_are_one(scenario: str, runs: Runs, tmp_path: Path) -> None:
    for strategy in load_scenario(scenario).strategies:
        first = runs.of(scenario, "sim", strategy)
        again = testbed.run(scenario, "sim", strategy=strategy, out=tmp_path / strategy)
        for name in ("history.jsonl", "history.arrays"):
            assert (first.folder / name).read_bytes() == (again.folder / name).read_bytes(), name
