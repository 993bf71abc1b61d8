"""Random schedules are the same for the same seed, and always legal."""

from __future__ import annotations

from collections import Counter

import pytest
from hypothesis import given
from hypothesis import strategies as st

from chaos.checks import problems
from chaos.fault_kinds.links import LinkFault
from chaos.random_schedule import SweepLimits, random_scenario
from chaos.scenario import parse_scenario, refusals, scenario_yaml, to_run_config
from services.config import Strategy
from tests.chaos.test_scenario import FACTS

ENGINES = st.sampled_from(["sim", "local", "containers"])
STRATEGIES: st.SearchStrategy[Strategy] = st.sampled_from(["ring", "ps"])


@given(seed=st.integers(0, 2**63 - 1), engine=ENGINES, strategy=STRATEGIES, workers=st.integers(1, 8))
def test_random_schedules_are_always_legal(seed: int, engine: str, strategy: Strategy, workers: int) -> None:
    limits = SweepLimits(workers=(workers, 8), steps=(8, 20), faults=(1, 5))
    scenario = random_scenario(seed, engine, strategy, limits)
    assert problems(scenario) == []
    assert refusals(scenario, engine, strategy) == []
    assert workers <= scenario.training.workers <= 8
    assert 8 <= scenario.training.steps <= 20
    assert len(scenario.faults) <= 5
    assert not any(fault.timed for fault in scenario.faults)
    assert scenario.name == f"random-{seed}"
    assert parse_scenario(scenario_yaml(scenario), "again") == scenario
    to_run_config(scenario, strategy, FACTS)


@given(seed=st.integers(0, 2**32))
def test_the_same_seed_gives_the_same_schedule(seed: int) -> None:
    assert random_scenario(seed) == random_scenario(seed)


@pytest.mark.parametrize(("engine", "strategy"), [("sim", "ring"), ("sim", "ps"), ("local", "ps")])
def test_all_kinds_are_drawn(engine: str, strategy: Strategy) -> None:
    seen: Counter[str] = Counter()
    for seed in range(400):
        scenario = random_scenario(seed, engine, strategy)
        seen.update(
            f"{fault.kind} {getattr(fault, 'target', '').partition('-')[0]}".strip() for fault in scenario.faults
        )
        assert scenario.faults, f"seed {seed} draws nothing"
    wanted = {"kill worker", "kill coordinator", "kill verifier", "kill everyone", "pause worker", "straggle worker"}
    wanted |= {"add worker", "corrupt_checkpoint"}
    wanted |= {"kill server"} if strategy == "ps" else set()
    links = {"latency", "jitter", "drop", "duplicate", "reorder", "corrupt_payload", "partition"}
    wanted |= links if engine == "sim" else set()
    assert set(seen) == wanted


def test_data_with_zeros_and_a_model_that_is_not_convex_are_among_them() -> None:
    plain = [random_scenario(seed).model_dump()["training"] for seed in range(100)]
    assert sum(training["dataset"]["kind"] == "digits" for training in plain) >= 5
    assert sum(training["model"]["kind"] == "mlp" for training in plain) >= 8


def test_what_messages_may_change_is_not_called_fixed() -> None:
    for seed in range(200):
        scenario = random_scenario(seed)
        loose = any(isinstance(fault, LinkFault) and fault.kind != "partition" for fault in scenario.faults)
        assert scenario.fixed is not loose
