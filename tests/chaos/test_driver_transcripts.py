"""The driver, event in and actions out, for every kind of fault. The transcripts are in tests/golden/driver."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from chaos.actions import DriverTimer, LinkMeasured
from chaos.library import load_scenario
from services.records import Died, Finished, Proven, Recovered, RolledBack
from tests.chaos.golden import compare
from tests.chaos.transcript import Play, scenario_of


def proven(worker: int, incarnation: int, step: int) -> Proven:
    return Proven(worker, incarnation, step, 2, "", "")


def kill() -> Play:
    play = Play(load_scenario("kill-worker"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.reduce")
    play.exit(95, "worker-2")
    play.fact(300, Finished(16, "finished"))
    play.exit(301, "coordinator", 0)
    return play


def kill_and_relaunch() -> Play:
    play = Play(load_scenario("relaunch"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.reduce")
    play.exit(95, "worker-2")
    play.launch(600, "worker-2")
    play.opened(610, 6)
    play.fact(700, proven(2, 5, 8))
    return play


def two_kills_in_one_step() -> Play:
    play = Play(load_scenario("two-killed"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.stand(91, "worker-4", "5.ready")
    play.exit(92, "worker-2")
    play.exit(93, "worker-4")
    return play


def kill_coordinator_twice_at_one_point() -> Play:
    play = Play(
        scenario_of(
            "- {kind: kill, target: coordinator, trigger: {step: 5, phase: decide}}\n"
            "- {kind: kill, target: coordinator, trigger: {step: 5, phase: decide}}"
        )
    )
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.decide")
    play.exit(95, "coordinator")
    play.launch(500, "coordinator")
    play.opened(510, 1)  # from its log: passed over
    play.fact(520, Recovered(2, 4, 2, "exchange"))
    play.stand(600, "coordinator", "5.decide")
    play.exit(605, "coordinator")
    play.launch(900, "coordinator")
    play.fact(910, Recovered(2, 4, 2, "exchange"))  # the one before, from its log
    play.fact(920, Recovered(3, 4, 3, "exchange"))
    return play


def kill_server() -> Play:
    play = Play(load_scenario("kill-server-gathering"), "ps")
    play.opened(40, 1)
    play.stand(90, "server", "5.gathering")
    play.exit(95, "server")
    play.launch(400, "server")
    return play


def kill_verifier() -> Play:
    play = Play(
        scenario_of(
            "- {kind: kill, target: verifier, trigger: {step: 4, phase: unstored}}\n"
            "- {kind: kill, target: verifier, trigger: {step: 8, phase: stored}}"
        )
    )
    play.opened(40, 1)
    play.opened(60, 6)  # the verifier lags; its hold of step 4 is still to come
    play.stand(90, "verifier", "4.unstored")
    play.exit(95, "verifier")
    play.launch(400, "verifier")
    play.stand(500, "verifier", "8.stored")
    play.exit(505, "verifier")
    play.launch(800, "verifier")
    return play


def kill_everyone_with_damaged_checkpoints() -> Play:
    play = Play(load_scenario("corrupt-newest-checkpoint"), "ps")
    play.opened(40, 1)
    play.stand(90, "coordinator", "10.tell")
    for at_ms, role in enumerate(["coordinator", "worker-1", "worker-2", "worker-3", "worker-4", "server"], start=91):
        play.exit(at_ms, role)
    for at_ms, role in enumerate(["coordinator", "server", "worker-1", "worker-2", "worker-3", "worker-4"], start=500):
        play.launch(at_ms, role)
    play.opened(520, 10)
    play.fact(530, Recovered(2, 9, 2, "apply"))
    damaged = (("step-8", "tensors differ from the manifest"),)
    play.fact(600, RolledBack(4, 3, "step-4", "", "", "", "nobody holds the state after step 9", damaged))
    for worker in (1, 2, 3, 4):
        play.fact(700 + worker, proven(worker, 4 + worker, 4))
    play.opened(720, 5)
    return play


def power_cut() -> Play:
    play = Play(load_scenario("power-cut"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "4.tell")
    play.exit(95, "coordinator")
    play.launch(400, "coordinator")
    play.fact(420, Recovered(2, 3, 2, "apply"))
    return play


def pause_past_lease() -> Play:
    play = Play(load_scenario("pause-past-lease"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.fact(1690, Died(2, 2, "lease ended", 4))
    play.opened(1700, 6)
    play.fact(1800, proven(2, 5, 8))
    return play


def pause_for_a_time() -> Play:
    fault = "- {kind: pause, target: worker-2, trigger: {step: 5, phase: offer}, for_ms: 400}"
    play = Play(scenario_of(fault, "fixed: false"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.feed(490, DriverTimer("1-pause-worker-2:over"))
    return play


def straggle() -> Play:
    play = Play(load_scenario("straggler"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.closed(1600, 5, ((2, "deadline"),))
    return play


def straggle_heard_of_after_the_close() -> Play:
    play = Play(load_scenario("straggler"))
    play.opened(40, 1)
    play.closed(1600, 5, ((2, "deadline"),))
    play.stand(1610, "worker-2", "5.offer")
    return play


def add_worker() -> Play:
    play = Play(load_scenario("late-join"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.launch(500, "worker-4")
    play.fact(600, proven(4, 4, 5))
    return play


def kill_joiner() -> Play:
    play = Play(load_scenario("kill-joiner-sync"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "4.offer")
    play.exit(95, "worker-2")
    play.launch(500, "worker-2")
    play.stand(600, "worker-2", "8.sync")
    play.exit(605, "worker-2")
    play.launch(900, "worker-2")
    play.opened(910, 8)
    play.fact(1000, proven(2, 6, 10))
    return play


def everyone_while_a_worker_is_awaited() -> Play:
    play = Play(
        scenario_of(
            "- {kind: kill, target: worker-2, trigger: {step: 5, phase: reduce}, relaunch_at: 10}\n"
            "- {kind: kill, target: everyone, trigger: {step: 8, phase: decide}}",
            "training: {workers: 3}",
        )
    )
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.reduce")
    play.exit(95, "worker-2")
    play.launch(300, "worker-2")
    play.stand(400, "coordinator", "8.decide")
    for at_ms, role in enumerate(["coordinator", "worker-1", "worker-2", "worker-3"], start=401):
        play.exit(at_ms, role)
    for at_ms, role in enumerate(["coordinator", "worker-1", "worker-2", "worker-3"], start=600):
        play.launch(at_ms, role)
    play.fact(620, Recovered(2, 7, 2, "exchange"))
    play.fact(630, RolledBack(5, 3, "step-5", "", "", "", ""))
    play.fact(640, proven(1, 5, 5))
    play.fact(641, proven(3, 6, 5))
    play.opened(650, 6)
    play.fact(700, proven(2, 7, 9))
    play.opened(710, 10)
    return play


LINK = "{kind: %s, pairs: [[worker-1, worker-2]], trigger: {role: coordinator, step: 5, phase: opened}, %s}"


def latency_until_a_phase() -> Play:
    until = "delay_ms: 20, until: {role: worker-1, step: 7, phase: offer}"
    play = Play(scenario_of(f"- {LINK % ('latency', until)}"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-latency", "before", {"rtt_ms": 0.4}))
    play.feed(120, LinkMeasured("1-latency", "during", {"messages": 1, "affected": 1}))
    play.stand(200, "worker-1", "7.offer")
    play.feed(205, LinkMeasured("1-latency", "after", {"messages": 9, "affected": 9}))
    return play


def partition_for_a_time() -> Play:
    links = "groups: [[worker-1], [worker-2, worker-3]], one_way: true"
    fault = f"- {{kind: partition, {links}, trigger: {{at_ms: 50}}, for_ms: 80}}"
    play = Play(scenario_of(fault, "fixed: false"))
    play.opened(40, 1)
    play.feed(90, DriverTimer("1-partition:start"))
    play.feed(100, LinkMeasured("1-partition", "during", {"affected": 1}))
    play.feed(170, DriverTimer("1-partition:over"))
    play.feed(175, LinkMeasured("1-partition", "after", {"affected": 4}))
    return play


def partition_past_the_leases() -> Play:
    play = Play(load_scenario("partition-heal"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-partition", "during", {"affected": 1}))
    play.fact(1700, Died(3, 3, "lease ended", 4))
    play.fact(1710, Died(4, 4, "lease ended", 4))
    play.feed(1720, LinkMeasured("1-partition", "after", {"affected": 12}))
    play.fact(1900, proven(3, 5, 8))
    play.fact(1901, proven(4, 6, 8))
    return play


def flap() -> Play:
    play = Play(scenario_of(f"- {LINK % ('flap', 'down_ms: 100, up_ms: 20, cycles: 2')}", "fixed: false"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(100, LinkMeasured("1-flap", "during", {"affected": 1}))
    play.feed(190, DriverTimer("1-flap:up"))
    play.feed(195, LinkMeasured("1-flap", "after", {"affected": 3}))
    play.feed(210, DriverTimer("1-flap:down"))
    play.feed(310, DriverTimer("1-flap:up"))
    play.feed(315, LinkMeasured("1-flap", "after", {"affected": 2}))
    return play


def reset() -> Play:
    play = Play(scenario_of(f"- {LINK % ('reset', 'one_way: true')}"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-reset", "after", {"affected": 1}))
    return play


PLAYS: tuple[Callable[[], Play], ...] = (
    kill,
    kill_and_relaunch,
    two_kills_in_one_step,
    kill_coordinator_twice_at_one_point,
    kill_server,
    kill_verifier,
    kill_everyone_with_damaged_checkpoints,
    power_cut,
    pause_past_lease,
    pause_for_a_time,
    straggle,
    straggle_heard_of_after_the_close,
    add_worker,
    kill_joiner,
    everyone_while_a_worker_is_awaited,
    latency_until_a_phase,
    partition_for_a_time,
    partition_past_the_leases,
    flap,
    reset,
)


@pytest.mark.parametrize("play", PLAYS, ids=lambda play: play.__name__)
def test_transcript(play: Callable[[], Play]) -> None:
    compare(f"driver/{play.__name__}.txt", play().text)
