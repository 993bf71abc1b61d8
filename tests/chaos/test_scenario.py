"""Scenarios: the packaged ones, what engines refuse, overrides, and the configuration that follows from them."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.faults import KINDS, cannot, describe_kinds
from chaos.library import load_scenario, scenario_names, scenario_text
from chaos.scenario import (
    DatasetFacts,
    Overrides,
    Scenario,
    ScenarioError,
    checked,
    override,
    parse_scenario,
    refusals,
    scenario_yaml,
    to_run_config,
    to_shard_config,
)
from chaos.schema import SCHEMA_FILE, scenario_schema_text
from chaos.training_setup import DatasetSetup, ModelSetup, TimingSetup, TrainingSetup
from services.any_config import AnyRunConfig, AnyStrategy, read_run_config
from services.config import Timing
from tests.chaos.golden import REWRITE
from tests.chaos.transcript import scenario_of
from training.corpora import CorpusSpec, load_corpus
from training.datasets import load_dataset

ROOT = Path(__file__).resolve().parent.parent.parent
FACTS = DatasetFacts("blobs", "0" * 64, 107, 8, 4)
SIM_ONLY = {
    "corrupt-payload",
    "corrupt-payload-server",
    "drop-delay-duplicate-reorder",
    "flapping-link",
    "one-way-partition",
    "partition-heal",
    "power-cut",
}


# ---------------------------------------------------------------- packaged scenarios


@pytest.mark.parametrize("name", scenario_names())
def test_every_packaged_scenario_is_sound(name: str) -> None:
    scenario = load_scenario(name)
    assert scenario.name == name
    assert scenario.title
    assert scenario.description.endswith(".")
    assert parse_scenario(scenario_yaml(scenario), "again") == scenario
    assert Scenario.model_validate(scenario.model_dump(mode="json")) == scenario
    for engine in ("sim", "local", "containers"):
        for strategy in scenario.strategies:
            able = engine in scenario.engines
            assert (refusals(scenario, engine, strategy, toxiproxy=True) == []) is able
            config = _config(scenario, strategy)
            assert read_run_config(config.to_json()) == config


def _config(scenario: Scenario, strategy: AnyStrategy) -> AnyRunConfig:
    if strategy == "shards":
        return to_shard_config(scenario, load_corpus(CorpusSpec()))
    return to_run_config(scenario, strategy, FACTS)


def test_the_scenarios_of_the_design_are_there() -> None:
    phases = ["open", "offer", "reduce", "reduce-chunk", "ready", "apply", "applied"]
    wanted = {f"kill-at-{phase}" for phase in phases} | {f"kill-coordinator-{phase}" for phase in ("decide", "tell")}
    wanted |= {"kill-server-gathering", "kill-server-publishing", "kill-joiner-sync", "kill-joiner-proved"}
    wanted |= {"clean", "kill-worker", "two-killed", "straggler", "short-batch-death", "pause-past-lease", "relaunch"}
    wanted |= {"late-join", "resume", "kill-verifier", "corrupt-newest-checkpoint", "uneven-batches"}
    wanted |= {"more-workers-than-samples", "demo"} | SIM_ONLY
    assert wanted <= set(scenario_names())
    shards = {"clean", "delay", "jitter-reorder", "stale", "partial-commit", "decay", "top50-6bit", "rollback"}
    shards |= {
        f"kill-{phase}" for phase in ("open", "forward", "backward", "prepare", "prepared", "commit", "committed")
    }
    assert {f"shards-{name}" for name in shards} <= set(scenario_names())


def test_an_unknown_name_says_the_nearest() -> None:
    with pytest.raises(ScenarioError, match=r"^no scenario is called 'kil-worker'; did you mean 'kill-worker'\?$"):
        scenario_text("kil-worker")


def test_the_demo_is_what_it_says() -> None:
    demo = load_scenario("demo")
    assert demo.training.steps >= 60
    assert demo.training.workers == 4
    assert demo.promises == {
        "kills": 2,
        "relaunches": 1,
        "returns": 1,
        "stragglers": 1,
        "min_generations": 6,
        "refused_stale": 1,
        "refused_late": 1,
        "min_accuracy": 0.9,
        "condition": "finished",
        "exit_code": 0,
    }
    assert to_run_config(demo, "ring", FACTS).expected_joins == ((22, 2), (46, 1))


# ---------------------------------------------------------------- engines


def test_refusals_name_the_fault_and_the_way_out() -> None:
    scenario = load_scenario("partition-heal")
    assert refusals(scenario, "local", "ring") == [
        "fault 1-partition: engine local can do partition only through Toxiproxy; use engine sim or containers",
    ]
    assert refusals(load_scenario("kill-server-gathering"), "sim", "ring") == [
        "scenario kill-server-gathering is for strategy ps, not ring"
    ]
    assert refusals(load_scenario("power-cut"), "containers", "ps")[1:] == [
        "fault 1-power_cut-coordinator: engine containers cannot do power_cut; use engine sim",
        "fault 2-power_cut-everyone: engine containers cannot do power_cut; use engine sim",
    ]


def test_toxiproxy_does_bytes_and_connections_not_messages() -> None:
    able = {
        kind: [engine for engine in ("sim", "local", "containers", "lan") if engine in model.able]
        for kind, model in KINDS.items()
    }
    without_sim = [kind for kind, engines in able.items() if "sim" not in engines]
    assert without_sim == ["down", "timeout", "limit", "slicer", "slow_close"]
    assert [kind for kind, engines in able.items() if "local" in engines] == [
        "kill",
        "pause",
        "straggle",
        "add",
        "corrupt_checkpoint",
        "stop",
    ]
    through = [kind for kind, model in KINDS.items() if "containers" in model.able_with_toxiproxy]
    assert through == ["latency", "jitter", "bandwidth", "partition", "reset", "flap", "disconnect", *without_sim]
    fault = load_scenario("partition-heal").faults[0]
    assert cannot(fault, "local", toxiproxy=True) == ""


def test_every_kind_says_what_it_is() -> None:
    assert all(text.endswith(".") and len(text) < 120 for text in describe_kinds().values())


# ---------------------------------------------------------------- overrides


def test_overrides_change_the_setup_and_are_checked() -> None:
    scenario = override(load_scenario("demo"), Overrides(steps=70, seed=9, batch_size=8, learning_rate=0.25))
    training = scenario.training
    assert isinstance(training, TrainingSetup)
    assert (training.steps, training.seed, training.batch.size, training.optimizer.learning_rate) == (70, 9, 8, 0.25)
    assert scenario.expect.min_accuracy is None
    assert override(load_scenario("demo"), Overrides(seed=9)).expect.min_accuracy == 0.9
    assert override(load_scenario("demo"), Overrides()) == load_scenario("demo")
    changed = override(
        load_scenario("clean"),
        Overrides(dataset=DatasetSetup(kind="digits"), model=ModelSetup(kind="mlp", hidden_count=3)),
    )
    assert isinstance(changed.training, TrainingSetup)
    assert changed.training.model.hidden_count == 3
    assert changed.training.dataset.kind == "digits"


@pytest.mark.parametrize(
    ("overrides", "complaint"),
    [
        (Overrides(workers=1), "fault 1, target: worker-2 does not exist; the run has worker-1"),
        (Overrides(workers=0), "workers: 0 is out of range: at least 1"),
        (Overrides(steps=4), "fault 1, trigger.step: step 5 is beyond the run, which has 4 steps"),
        (Overrides(batch_size=-1), "batch.size: -1 is out of range: at least 1"),
        (Overrides(learning_rate=float("nan")), "optimizer.learning_rate: Input should be a finite number"),
    ],
)
def test_overrides_that_do_not_fit_are_refused(overrides: Overrides, complaint: str) -> None:
    with pytest.raises(ScenarioError) as caught:
        override(load_scenario("kill-worker"), overrides)
    (changed,) = [name for name in Overrides.__dataclass_fields__ if getattr(overrides, name) is not None]
    assert str(caught.value) == f"scenario kill-worker with {changed} changed: {complaint}"


def test_checked_names_its_source() -> None:
    scenario = load_scenario("clean").model_copy(update={"clean_steps": 99})
    with pytest.raises(ScenarioError, match=r"^here: clean_steps: 99 clean steps do not fit in a run of 16$"):
        checked(scenario, "here")


# ---------------------------------------------------------------- configuration


def test_the_configuration_follows_from_the_scenario() -> None:
    scenario = load_scenario("straggler")
    assert isinstance(scenario.training, TrainingSetup)
    dataset = load_dataset(scenario.training.dataset.spec())
    config = to_run_config(scenario, "ps", DatasetFacts.of(dataset))
    assert config.run_id == "straggler-ps-1"
    assert (config.sample_count, config.dataset_sha256) == (107, dataset.sha256)
    assert config.timing == Timing(deadline_ms=1500.0)
    assert to_run_config(scenario, "ps", DatasetFacts.of(dataset), run_id="x").run_id == "x"


@pytest.mark.parametrize(
    ("name", "joins"),
    [
        ("relaunch", ((9, 2),)),
        ("pause-past-lease", ((9, 2),)),
        ("late-join", ((6, 4),)),
        ("kill-joiner-sync", ((8, 2), (11, 2))),
        ("partition-heal", ((9, 3), (9, 4))),
        ("resume", ((10, 1), (10, 2), (10, 3), (10, 4))),
        ("kill-worker", ()),
    ],
)
def test_expected_joins(name: str, joins: tuple[tuple[int, int], ...]) -> None:
    assert to_run_config(load_scenario(name), "ring", FACTS).expected_joins == joins


def test_everyone_killed_means_everyone_who_is_there() -> None:
    scenario = scenario_of(
        "- {kind: kill, target: worker-2, trigger: {step: 3, phase: open}}\n"
        "- {kind: kill, target: worker-3, trigger: {step: 4, phase: open}, relaunch_at: 10}\n"
        "- {kind: kill, target: everyone, trigger: {step: 8, phase: tell}}"
    )
    assert to_run_config(scenario, "ring", FACTS).expected_joins == ((9, 1), (9, 4), (10, 3))


def test_timing_has_every_duration_of_the_protocol() -> None:
    assert set(TimingSetup.model_fields) == set(Timing.__dataclass_fields__)
    assert TimingSetup().timing() == Timing()


# ---------------------------------------------------------------- schema


def test_the_published_schema_is_fresh() -> None:
    path = ROOT / SCHEMA_FILE
    if REWRITE:
        path.write_text(scenario_schema_text(), encoding="utf-8")
    assert path.read_text(encoding="utf-8") == scenario_schema_text(), "GRADSTORM_REWRITE_GOLDEN=1 writes it anew"


def test_what_belongs_under_training_is_said_to() -> None:
    text = "name: x\ntitle: y\nsteps: 30\nclean_step: 4\nshards: 3\n"
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.yaml")
    assert caught.value.complaints == (
        "mine.yaml:3: steps: unknown key; it belongs under 'training:'",
        "mine.yaml:4: clean_step: unknown key; did you mean 'clean_steps'?",
        "mine.yaml:5: shards: unknown key; it belongs under 'training:'",
    )
