"""A violating schedule becomes a small one that still violates; every candidate makes sense, none is tried twice."""

from __future__ import annotations

import pytest

from chaos.checks import problems
from chaos.expect import Expect
from chaos.fault_kinds.roles import Kill
from chaos.random_schedule import SweepLimits, random_scenario
from chaos.scenario import Scenario
from chaos.shrink import shrink
from chaos.training_setup import TrainingSetup
from tests.chaos.transcript import scenario_of
from training.errors import ConfigurationError

BUSY = """\
- {kind: straggle, target: worker-1, step: 3}
- {kind: kill, target: worker-2, trigger: {step: 5, phase: reduce, chunk: 3}, relaunch_at: 9}
- {kind: kill, target: coordinator, trigger: {step: 6, phase: decide}}
- {kind: pause, target: worker-4, trigger: {step: 8, phase: apply}, return_at: 12}
- {kind: add, target: worker-6, step: 10}
- {kind: kill, target: worker-5, trigger: {step: 11, phase: ready}}
- {kind: kill, target: verifier, trigger: {step: 12, phase: stored}}
"""
HEAD = "training: {workers: 5, steps: 20, chunk_elements: 5, batch: {size: 3}}\nexpect: {refused_stale: 1}"


class Asked:
    """A predicate that remembers what it was asked."""

    def __init__(self, faulty: str) -> None:
        self.faulty = faulty
        self.scenarios: list[Scenario] = []

    def __call__(self, scenario: Scenario) -> bool:
        assert problems(scenario) == []
        assert scenario not in self.scenarios
        self.scenarios.append(scenario)
        return any(self.matches(fault) for fault in scenario.faults)

    def matches(self, fault: object) -> bool:
        return isinstance(fault, Kill) and getattr(fault.trigger, "phase", "") == self.faulty


def test_one_fault_is_left_with_as_little_around_it_as_makes_sense() -> None:
    asked = Asked("ready")
    small = shrink(scenario_of(BUSY, HEAD), asked)
    (fault,) = small.scenario.faults
    assert isinstance(fault, Kill)
    assert (fault.target, fault.starts.model_dump()["step"], fault.relaunch_at) == ("worker-1", 1, None)
    assert (small.scenario.training.workers, small.scenario.training.steps) == (2, 2)
    assert isinstance(small.scenario.training, TrainingSetup)
    assert small.scenario.training.chunk_elements == 131_072
    assert small.scenario.expect == Expect()
    assert not small.exhausted
    assert small.tries == len(asked.scenarios)


def test_two_faults_that_are_needed_together_stay() -> None:
    def violates(scenario: Scenario) -> bool:
        kinds = [fault.kind for fault in scenario.faults]
        return "straggle" in kinds and "pause" in kinds

    small = shrink(scenario_of(BUSY, HEAD), violates).scenario
    assert sorted(fault.kind for fault in small.faults) == ["pause", "straggle"]
    assert small.training.workers <= 3


def test_a_violation_without_any_fault_loses_them_all() -> None:
    small = shrink(scenario_of(BUSY, HEAD), lambda scenario: True).scenario
    assert small.faults == []
    assert (small.training.workers, small.training.steps) == (1, 1)


def test_a_promise_that_is_the_violation_is_kept() -> None:
    small = shrink(scenario_of(BUSY, HEAD), lambda scenario: scenario.expect.refused_stale == 1).scenario
    assert small.expect.refused_stale == 1


def test_nothing_violated_is_nothing_to_shrink() -> None:
    with pytest.raises(ConfigurationError, match="scenario example violates nothing"):
        shrink(scenario_of(BUSY, HEAD), lambda scenario: False)


def test_the_tries_are_bounded() -> None:
    asked = Asked("ready")
    small = shrink(scenario_of(BUSY, HEAD), asked, tries_max=5)
    assert small.exhausted
    assert small.tries == len(asked.scenarios) == 5
    assert any(asked.matches(fault) for fault in small.scenario.faults)


def test_random_schedules_shrink_to_sense() -> None:
    limits = SweepLimits(workers=(3, 8), faults=(3, 6))
    for seed in range(40):
        for strategy in ("ring", "ps"):
            scenario = random_scenario(seed, "sim", "ps" if strategy == "ps" else "ring", limits)
            kinds = {fault.kind for fault in scenario.faults}
            for kind in sorted(kinds):
                small = shrink(scenario, lambda tried, kind=kind: kind in {f.kind for f in tried.faults}).scenario  # type: ignore[misc]
                assert problems(small) == []
                assert len(small.faults) <= 2
                assert small.training.workers <= 3
