"""What is not finite makes a step that is committed and changes nothing, on every shard, as in the central model."""

from __future__ import annotations

from pathlib import Path

import pytest

import testbed
from chaos.library import scenario_text
from chaos.scenario import Scenario, parse_scenario
from chaos.shard_setup import ShardTrainingSetup
from testbed.planning import corpus_of
from testbed.results import RunResult
from training.baseline import BaselineConfig, BaselineResult, run_baseline
from training.digest import array_digest


def scenario(shards: int, more: str = "") -> Scenario:
    """`shards-overflow` with another cut; `more` goes into its training."""
    told = scenario_text("shards-overflow").replace("shards: 2", f"shards: {shards}\n  {more}")
    return parse_scenario(told, "overflow.yaml")


def central(one: Scenario) -> BaselineResult:
    training = one.training
    assert isinstance(training, ShardTrainingSetup)
    corpus = corpus_of(one)
    config = BaselineConfig(
        training.model.config(corpus.vocabulary_size), training.optimizer.config(), training.seed, training.steps,
        training.batch, training.micro_batches, training.evaluate_every, training.evaluation_contexts,
    )  # fmt: skip
    return run_baseline(config, corpus)


def require_skips(result: RunResult, one: Scenario) -> None:
    document, expected = result.document, central(one)
    assert document["verdict"] == "pass", document["reasons"]
    assert expected.skipped == (2, 3, 4, 5, 6)
    assert document["steps_checked"] == document["steps_committed"] == 6
    assert document["params_sha256"] == array_digest(expected.parameters)
    (seen,) = [one for one in document["observations"] if one["kind"] == "step skipped"]
    assert (seen["count"], seen["first_step"]) == (5, 2)
    assert seen["role"].startswith("shard-")
    assert document["final_eval_loss"] is None


@pytest.mark.parametrize("shards", [1, 2, 3])  # one of them dies in a skip and comes back to it
def test_kind_09_all_skip_together_and_as_the_central_model(shards: int, tmp_path: Path) -> None:
    one = scenario(shards)
    require_skips(testbed.run(one, out=tmp_path / "run"), one)


def test_kind_09_compressed_too(tmp_path: Path) -> None:
    document = testbed.run(scenario(2, "compression: {keep_percent: 50, bits: 6}"), out=tmp_path / "run").document
    assert document["verdict"] == "pass", document["reasons"]
    assert document["observations"][0]["kind"] == "step skipped"


@pytest.mark.local
def test_processes_skip_as_the_simulator_does(tmp_path: Path) -> None:
    one = scenario(2)
    require_skips(testbed.run(one, "local", out=tmp_path / "run"), one)


def test_a_skip_without_need_is_caught(tmp_path: Path) -> None:
    document = testbed.run("shards-clean", plant=["skipped-without-need"], out=tmp_path / "run").document
    (broken,) = [one for name, one in document["invariants"].items() if name == "gradient exactness"]
    assert broken["verdict"] == "violated"
    assert "gradient of its batch is finite" in broken["first_violation"]["what"]
