"""A coordinator that is killed at any moment comes back and the run ends; nobody else may stand in for its word."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from chaos.scenario import parse_scenario
from services.events import COORDINATOR, Linked, Received, Send, Started, Stop, TimerFired, Unlinked
from services.messages import DataPart, Join, SaveCheckpoint, Turned, WantData, Welcome
from services.records import Admitted, RunStarted
from services.roles.server import Server
from services.roles.worker import Worker
from testbed.api import run
from tests.services.roles.coordinator_bench import Bench
from training.digest import array_digest

KILLED_AT = """
name: killed-at
title: The coordinator is killed at some moment
fixed: false
training: {{workers: 3, steps: 6, checkpoint_every: {every}, dataset: {{sample_count: 40}}, batch: {{size: 3}}}}
faults: [{{kind: kill, target: coordinator, trigger: {{at_ms: {at_ms}}}}}]
clean_steps: 1
"""
STRAGGLER = """
name: straggler-and-coordinator
title: A straggler in a step whose coordinator died
training: {workers: 3, steps: 8, timing: {deadline_ms: 1500}}
faults:
  - {kind: kill, target: coordinator, trigger: {step: 5, phase: opened}}
  - {kind: straggle, target: worker-2, step: 5}
"""

ALL_IN_A_SHORT_STEP = """
name: all-in-a-short-step
title: Everyone dies in a step to which not all contribute
training: {workers: 3, steps: 12}
faults: [{kind: kill, target: everyone, trigger: {step: 8, phase: decide}}]
clean_steps: 1
"""


@pytest.mark.parametrize("seed", range(1, 7))
@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_everyone_may_die_in_a_step_to_which_not_all_contribute(strategy: str, seed: int, tmp_path: Path) -> None:
    """The coordinator that is back may open that step once more, before it hears of the last death."""
    scenario = parse_scenario(ALL_IN_A_SHORT_STEP, "short")
    document = run(scenario, strategy=strategy, seed=seed, out=tmp_path / "run").document
    assert (document["verdict"], document["reasons"]) == ("pass", [])


@pytest.mark.parametrize("strategy", ["ring", "ps"])
@pytest.mark.parametrize("every", [1, 3])
def test_a_coordinator_killed_at_any_moment_comes_back(strategy: str, every: int, tmp_path: Path) -> None:
    for number in range(14):
        at_ms = 0.3 + 2.37 * number
        scenario = parse_scenario(KILLED_AT.format(every=every, at_ms=at_ms), "killed-at")
        document = run(scenario, strategy=strategy, seed=number, out=tmp_path / str(number)).document
        assert document["verdict"] == "pass", (at_ms, document["reasons"])
        assert (document["kills"], document["steps_committed"]) == (1, 6), at_ms


def test_a_straggler_is_left_out_by_a_coordinator_that_came_back(tmp_path: Path) -> None:
    document = run(parse_scenario(STRAGGLER, "straggler"), out=tmp_path / "run").document
    assert document["verdict"] == "pass", document["reasons"]


def test_what_it_tells_is_enough_to_judge_although_nothing_of_its_first_life_was_stored() -> None:
    bench = Bench()
    (first,) = bench.told(RunStarted)
    assert first.parameters is not None
    bench.relaunched()
    (again,) = bench.told(RunStarted)
    assert again.parameters is not None
    assert again.velocity is not None
    assert array_digest(again.parameters) == again.parameters_digest == first.parameters_digest
    assert array_digest(again.velocity) == again.velocity_digest == first.velocity_digest


def test_nor_is_another_state_told_than_the_log_names() -> None:
    bench = Bench()
    bench.config = replace(bench.config, seed=2)
    bench.relaunched()
    (again,) = bench.told(RunStarted)
    assert again.parameters is None


def test_a_join_that_is_asked_again_is_the_same_and_that_of_a_new_process_another() -> None:
    bench = Bench()
    known = bench.coordinator.incarnations
    bench.hear(4, Join(4, 1, "", "numerics"), 0)
    bench.hear(4, Join(4, 1, "", "numerics"), 0)  # the answer was lost, or late
    assert bench.last(4, Welcome).incarnation == bench.coordinator.incarnations == known + 1
    bench.hear(4, Join(4, 2, "", "numerics"), 0)
    assert bench.last(4, Welcome).incarnation == bench.coordinator.incarnations == known + 2
    assert [(fact.worker, fact.incarnation) for fact in bench.told(Admitted)[-2:]] == [(4, known + 1), (4, known + 2)]
    assert bench.hear(4, bench.offer(1), incarnation=known + 1)[0].reason == "old incarnation"


def test_kind_21_nobody_but_the_coordinator_turns_a_worker_away_or_feeds_it() -> None:
    worker = Worker(1, 1)
    worker.handle(0, Started("n", "a"))
    worker.handle(0, Linked(COORDINATOR, 1))
    for message in (Turned(0, "go away", fenced=False), Welcome(7, 1, "{}", 0), DataPart(0, 1, b"x")):
        effects = worker.handle(1, Received("worker-2", 2, message))
        assert not any(isinstance(effect, Stop) for effect in effects)
        assert worker.incarnation == 0
    server = Server(1)
    server.handle(0, Linked(COORDINATOR, 1))
    assert not any(
        isinstance(e, Stop) for e in server.handle(1, Received("worker-2", 2, Turned(0, "go", fenced=False)))
    )


def test_data_that_come_in_slowly_are_not_asked_for_twice() -> None:
    worker = Worker(1, 1)
    worker.handle(0, Linked(COORDINATOR, 1))
    worker.incarnation = 1
    worker._blob += b"some of it"
    asked = []
    for now_ms in (500, 1000):
        effects = worker.handle(now_ms, Linked(COORDINATOR, 1))
        asked.append(sum(isinstance(e, Send) and isinstance(e.message, WantData) for e in effects))
    assert asked == [0, 1]  # something came in before the first, nothing between the two


def test_a_checkpoint_that_nobody_heard_of_is_asked_for_again() -> None:
    bench = Bench()
    bench.coordinator.config = replace(bench.config, checkpoint_every=1)
    for worker in (1, 2, 3):
        bench.hear(worker, bench.offer(worker))
    for worker in (1, 2, 3):
        bench.hear(worker, bench.ready(worker))
    for worker in (1, 2, 3):
        bench.hear(worker, bench.applied())
    asked = bench.last(1, SaveCheckpoint)
    bench.sent.clear()
    bench.feed(TimerFired("resend"))
    assert bench.last(1, SaveCheckpoint) == asked
    bench.sent.clear()
    bench.feed(Unlinked("worker-1", 1))
    bench.feed(Linked("worker-1", 1))
    assert bench.last(1, SaveCheckpoint) == asked
