"""Layer-sharded training on every engine: the merged parameters are those of the central model, bitwise.

Where no decay and no compression changes the numbers, they are the same for every cut, delay and death, and the final
evaluation loss is that of `training.baseline`, digit for digit.
"""

from __future__ import annotations

import math
import os
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import testbed
from chaos.library import load_scenario, scenario_names
from chaos.scenario import Scenario
from chaos.shard_setup import ShardTrainingSetup
from services.records import BoundaryUsed
from testbed.containers.toxiproxy_process import HOW_TO_GET_ONE, find_toxiproxy
from testbed.engines.lan import LanEngine
from testbed.history_facts import read_facts
from testbed.lan.settings import LanSettings
from testbed.planning import corpus_of
from testbed.run_lines import summary_lines
from training.baseline import BaselineConfig, run_baseline
from training.digest import array_digest

SHARDED = [name for name in scenario_names() if load_scenario(name).sharded]
EXACT = [
    name for name in SHARDED
    if name not in ("shards-stale", "shards-decay", "shards-measured", "shards-top50-6bit", "shards-overflow")
]  # fmt: skip
ON_LOCAL = [
    "shards-clean",
    "shards-jitter-reorder",
    "shards-partial-commit",
    "shards-kill-forward",
    "shards-six-kills",
    "shards-rollback",
]


def central(scenario: Scenario) -> tuple[str, float]:
    """Digest of the centrally trained parameters and their evaluation loss."""
    training = scenario.training
    assert isinstance(training, ShardTrainingSetup)
    corpus = corpus_of(scenario)
    config = BaselineConfig(
        training.model.config(corpus.vocabulary_size), training.optimizer.config(), training.seed, training.steps,
        training.batch, training.micro_batches, training.evaluate_every, training.evaluation_contexts,
    )  # fmt: skip
    result = run_baseline(config, corpus)
    return array_digest(result.parameters), result.final_evaluation_loss


def require_central(document: dict[str, Any], scenario: Scenario) -> None:
    assert document["verdict"] == "pass", document["reasons"]
    assert document["exit_code"] == 0
    assert document["steps_checked"] == document["steps_committed"] == scenario.training.steps
    assert (document["params_sha256"], document["final_eval_loss"]) == central(scenario)
    assert document["told_eval_loss"] == document["final_eval_loss"]
    assert all(fault["state"] == "undone" and fault["witness"] for fault in document["faults"])
    assert document["kills"] == len(scenario.faults)


@pytest.mark.parametrize("name", EXACT)
def test_sim_equals_the_central_model(name: str, tmp_path: Path) -> None:
    require_central(testbed.run(name, out=tmp_path / "run").document, load_scenario(name))


@pytest.mark.local
@pytest.mark.parametrize("name", ON_LOCAL)
def test_processes_equal_the_central_model(name: str, tmp_path: Path) -> None:
    require_central(testbed.run(name, "local", out=tmp_path / "run").document, load_scenario(name))


@pytest.mark.parametrize("name", ["shards-decay", "shards-top50-6bit", "shards-kill-prepared"])
def test_two_simulated_runs_are_one(name: str, tmp_path: Path) -> None:
    first, again = (testbed.run(name, out=tmp_path / one) for one in ("first", "again"))
    assert first.verdict == again.verdict == "pass"
    for file in ("history.jsonl", "history.arrays"):
        assert (first.folder / file).read_bytes() == (again.folder / file).read_bytes()


@pytest.mark.local
@pytest.mark.parametrize("name", ["shards-decay", "shards-top50-6bit"])
def test_perturbed_runs_are_the_same_on_both_engines(name: str, tmp_path: Path) -> None:
    sim, local = (testbed.run(name, engine, out=tmp_path / engine).document for engine in ("sim", "local"))
    assert sim["verdict"] == local["verdict"] == "pass"
    assert sim["params_sha256"] == local["params_sha256"] != central(load_scenario(name))[0]
    assert (sim["ages"], sim["payload_bytes_total"]) == (local["ages"], local["payload_bytes_total"])


@pytest.mark.parametrize("engine", ["sim", pytest.param("local", marks=pytest.mark.local)])
def test_a_stale_boundary_stops_the_run_by_name(engine: str, tmp_path: Path) -> None:
    document = testbed.run("shards-stale", engine, out=tmp_path / "run").document
    assert (document["exit_code"], document["stop_condition"]) == (5, "stale boundary")
    assert document["steps_committed"] == 0
    assert document["stop_reason"].startswith(
        "forward boundary of step 1, micro-batch 0, cut 1 reached shard-2 at age 1;"
    )


_LOCAL = pytest.param("local", marks=[pytest.mark.local, pytest.mark.slow, pytest.mark.alone])
_CONTAINERS = pytest.param(
    "containers", marks=[pytest.mark.containers, pytest.mark.slow, pytest.mark.alone, pytest.mark.timeout(400)]
)


@pytest.mark.parametrize("engine", ["sim", _LOCAL, _CONTAINERS])
def test_measured_ages_are_those_of_a_late_link(engine: str, tmp_path: Path) -> None:
    if engine == "local" and find_toxiproxy(os.environ) is None:
        pytest.skip(HOW_TO_GET_ONE)
    result = testbed.run("shards-measured", engine, out=tmp_path / "run")
    document = result.document
    assert document["verdict"] == "pass", (document["reasons"], document["invariants"])
    assert document["ages_are"] == "measured"
    assert any("(measured, not drawn from the seed)" in line for line in summary_lines(result))
    (late,) = document["faults"]
    assert (late["state"], late["witness"] != {}) == ("undone", True)
    in_time = Counter[bool]()
    for told in read_facts(result.folder / "history.jsonl", (BoundaryUsed,)):
        fact = told.fact
        assert isinstance(fact, BoundaryUsed)
        assert fact.weight == max(0.5, math.exp(-0.1 * fact.age))
        if fact.step in (2, 3, 4) and fact.cut == 1:
            assert fact.age >= 2, fact  # 25 ms in ticks of 10
        else:
            in_time[fact.age < 2] += 1
    assert in_time[True] > in_time[False]


def test_a_narrow_link_makes_boundaries_old(tmp_path: Path) -> None:
    scenario = load_scenario("shards-measured")
    (late,) = scenario.model_dump()["faults"]
    del late["delay_ms"]
    narrow = {**late, "kind": "bandwidth", "kib_per_s": 500.0}  # 16,392 bytes take 32 ms, that is three ticks
    scenario = Scenario.model_validate({**scenario.model_dump(), "faults": [narrow]})
    document = testbed.run(scenario, out=tmp_path / "run").document
    assert (document["verdict"], document["ages"]) == ("pass", {"0": 52, "3": 12})


def test_measured_ages_take_one_clock() -> None:
    (why,) = LanEngine(LanSettings((("", "127.0.0.1:1"),), "token", "127.0.0.1")).refusals(clockwork(), "shards")
    assert why == "ages are measured, which takes one clock: engine lan has several machines"


def clockwork() -> Scenario:
    """Measured ages, and nothing else that the engine of several hosts could refuse."""
    return load_scenario("shards-measured").model_copy(update={"faults": []})


@pytest.mark.parametrize("shards", [1, 2, 5, 6])
def test_any_number_of_shards_gives_the_same_parameters(shards: int, tmp_path: Path) -> None:
    document = testbed.run("shards-clean", workers=shards, steps=4, out=tmp_path / "run").document
    assert document["verdict"] == "pass", document["reasons"]
    scenario = load_scenario("shards-clean")
    shorter = scenario.model_copy(update={"training": scenario.training.model_copy(update={"steps": 4})})
    assert document["params_sha256"] == central(shorter)[0]


def test_a_saved_run_is_judged_the_same_and_replayed_byte_for_byte(tmp_path: Path) -> None:
    result = testbed.run("shards-kill-commit", out=tmp_path / "run")
    assert testbed.verify(str(result.folder)).document["invariants"] == result.document["invariants"]
    again = testbed.replay(str(result.folder), out=tmp_path / "again")
    assert (again.folder / "history.jsonl").read_bytes() == (result.folder / "history.jsonl").read_bytes()
