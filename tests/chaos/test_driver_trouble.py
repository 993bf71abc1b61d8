"""What the driver does when things do not go as scheduled: it says so, undoes what it did, and never waits for ever."""

from __future__ import annotations

import pytest

from chaos.actions import (
    AbortRun,
    Action,
    ApplyLinkFault,
    DriverSetTimer,
    DriverTimer,
    FreezeTimers,
    Kill,
    LinkMeasured,
    ReleaseHold,
    Resume,
    RoleExited,
    RoleStood,
    RunBegan,
    Tell,
    ThawTimers,
    UndoLinkFault,
)
from chaos.library import load_scenario
from chaos.random_schedule import random_scenario
from services.records import (
    Died,
    Fact,
    FaultActed,
    FaultMissed,
    FaultUndone,
    Finished,
    Healed,
    Opened,
    Proven,
    Recovered,
)
from tests.chaos.transcript import Play, scenario_of


def told(actions: list[Action], kind: type[Fact]) -> list[Fact]:
    return [action.fact for action in actions if isinstance(action, Tell) and isinstance(action.fact, kind)]


def missed(actions: list[Action]) -> list[str]:
    return [f"{fact.fault}: {fact.reason}" for fact in told(actions, FaultMissed) if isinstance(fact, FaultMissed)]


def test_a_point_that_the_run_leaves_behind_is_missed() -> None:
    play = Play(load_scenario("kill-worker"))
    play.opened(40, 1)
    actions = play.opened(200, 6)
    assert "\n".join(missed(actions)) == (
        "1-kill-worker-2: worker-2 did not come to it (worker-2 at reduce of step 5; armed since 0 ms);"
        " step 6 opened at 200 ms"
    )
    assert told(actions, Healed)
    assert play.stand(210, "worker-2", "5.reduce") == [ReleaseHold("worker-2", "worker-2.5.reduce")]


def test_a_death_of_the_verifier_at_a_step_that_is_past_does_not_keep_the_run_from_being_healed() -> None:
    play = Play(scenario_of("- {kind: kill, target: verifier, trigger: {step: 2, phase: stored}}"))
    assert not told(play.opened(40, 1), Healed)
    assert not told(play.opened(60, 2), Healed)
    assert told(play.opened(80, 3), Healed)  # the steps from here on are clean, whenever the verifier comes to step 2
    assert told(play.stand(90, "verifier", "2.stored") + play.exit(95, "verifier"), FaultActed)


def test_a_joiners_point_is_missed_when_its_step_opens() -> None:
    play = Play(load_scenario("kill-joiner-sync"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "4.offer")
    play.exit(95, "worker-2")
    play.launch(300, "worker-2")
    lines = missed(play.opened(400, 8))
    assert lines[0].startswith("2-kill-worker-2: worker-2 did not come to it (worker-2 at sync of step 8;")
    assert lines[1] == "1-kill-worker-2: step 8 opened without worker-2, which had to be back"


def test_an_exit_that_nobody_ordered_aborts() -> None:
    play = Play(load_scenario("pause-past-lease"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    actions = play.exit(100, "worker-3", 1)
    assert actions[0] == Resume("worker-2")
    assert actions[1] == ReleaseHold("worker-2", "worker-2.5.offer")
    (reason,) = [action.reason for action in actions if isinstance(action, AbortRun)]
    assert reason == "worker-3 (launch 1) exited with code 1; no fault asked for it, see its log"
    assert missed(actions)[0].startswith(
        f"1-pause-worker-2: {reason}; 1-pause-worker-2 waits for the lease of worker-2"
    )
    assert play.opened(200, 6) == []


def test_exits_after_the_end_are_no_surprise() -> None:
    play = Play(load_scenario("clean"))
    play.opened(40, 1)
    play.fact(90, Finished(16, "finished"))
    assert play.exit(95, "worker-3", 0) == []


def test_a_role_that_ends_by_itself_was_not_killed() -> None:
    play = Play(load_scenario("kill-worker"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.reduce")
    actions = play.exit(91, "worker-2", 1)
    assert actions[0] == ThawTimers()
    assert missed(actions) == ["1-kill-worker-2: worker-2 exited by itself with code 1 before the signal"]


def test_a_run_that_stands_still_is_given_up_with_the_name_of_who_is_missing() -> None:
    play = Play(load_scenario("straggler"))
    play.opened(40, 1)
    play.stand(100, "worker-2", "5.offer")
    play.feed(29_500, DriverTimer("watchdog"))
    assert not any(isinstance(action, AbortRun) for action in play.feed(29_550, DriverTimer("nobody's")))
    actions = play.feed(29_600, DriverTimer("watchdog"))
    assert ReleaseHold("worker-2", "worker-2.5.offer") in actions
    assert actions[-1] == AbortRun(
        "no step moved for 29500 ms, since 100 ms;"
        " 1-straggle-worker-2 waits for step 5 to close without worker-2 since 100 ms"
    )


def test_the_watchdog_waits_on_while_steps_move() -> None:
    play = Play(load_scenario("clean"))
    play.opened(30_000, 1)
    (timer,) = play.feed(38_000, DriverTimer("watchdog"))
    assert str(timer) == "DriverSetTimer(name='watchdog', after_ms=30000.0)"
    play.fact(40_000, Finished(16, "finished"))
    assert play.feed(68_000, DriverTimer("watchdog")) == []


@pytest.mark.parametrize("name", ["pause-past-lease", "straggler"])
def test_a_bounded_wait_that_runs_out_lets_the_worker_go(name: str) -> None:
    play = Play(load_scenario(name))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    (fault,) = play.driver.active_faults
    actions = play.feed(13_090, DriverTimer(f"{fault}:1"))
    assert ReleaseHold("worker-2", "worker-2.5.offer") in actions
    assert "waited 13000 ms for" in missed(actions)[0]
    assert told(actions, Healed)


def test_a_timer_of_a_wait_that_is_over_does_nothing() -> None:
    play = Play(load_scenario("pause-past-lease"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.fact(1690, Died(2, 2, "lease ended", 4))
    assert play.feed(13_090, DriverTimer("1-pause-worker-2:1")) == []


def test_a_straggler_that_was_not_left_out_is_missed() -> None:
    play = Play(load_scenario("straggler"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    actions = play.closed(200, 5)
    assert actions[0] == ReleaseHold("worker-2", "worker-2.5.offer")
    assert missed(actions) == ["1-straggle-worker-2: step 5 closed and did not name worker-2 as left out"]


def test_somebody_else_missing_a_deadline_spoils_a_fixed_schedule() -> None:
    play = Play(load_scenario("straggler"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    actions = play.closed(1600, 5, ((2, "deadline"), (3, "deadline")))
    assert missed(actions) == ["schedule: worker-3 missed the deadline of step 5 unplanned"]
    assert told(actions, FaultActed)


def test_a_link_fault_that_nothing_met_is_missed() -> None:
    fault = "- {kind: reset, pairs: [[worker-1, worker-2]], trigger: {role: coordinator, step: 5, phase: opened}}"
    play = Play(scenario_of(fault))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    actions = play.feed(95, LinkMeasured("1-reset", "after", {"messages": 3, "affected": 0}))
    assert missed(actions) == ["1-reset: it met no message (3 crossed its links while it lasted)"]


def test_a_link_fault_without_a_last_measurement_is_told_all_the_same() -> None:
    play = Play(load_scenario("partition-heal"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-partition", "during", {"affected": 1}))
    play.fact(1700, Died(3, 3, "lease ended", 4))
    play.fact(1701, Died(4, 4, "lease ended", 4))
    assert play.feed(11_701, DriverTimer("1-partition:2")) == []
    assert "to be back in step 9" in play.driver.waiting[0]


def test_a_partition_whose_last_measurement_comes_after_everybody_is_back_is_not_missed() -> None:
    play = Play(load_scenario("partition-heal"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-partition", "during", {"affected": 1}))
    for worker in (3, 4):
        play.fact(1700 + worker, Died(worker, worker, "lease ended", 4))
    for worker in (3, 4):
        play.fact(1900 + worker, Proven(worker, worker + 2, 8, 2, "", ""))
    assert not play.opened(1950, 9)
    actions = play.feed(2200, LinkMeasured("1-partition", "after", {"affected": 12}))
    assert Tell(FaultUndone("1-partition", {"affected": 12})) in actions


def test_the_end_of_the_run_undoes_and_tells_what_is_outstanding() -> None:
    until = "until: {role: coordinator, step: 12, phase: opened}"
    play = Play(
        scenario_of(
            "- {kind: latency, delay_ms: 5, pairs: [[worker-1, worker-2]],"
            f" trigger: {{role: coordinator, step: 5, phase: opened}}, {until}}}\n"
            "- {kind: kill, target: worker-2, trigger: {step: 13, phase: apply}}"
        )
    )
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    play.feed(95, LinkMeasured("1-latency", "during", {"affected": 1}))
    actions = play.fact(100, Finished(7, "nobody left"))
    assert actions[0] == UndoLinkFault("1-latency")
    assert told(actions, FaultUndone) == [FaultUndone("1-latency", {"how": "the run ended at step 7: nobody left"})]
    assert missed(actions) == [
        "2-kill-worker-2: the run ended at step 7: nobody left; 2-kill-worker-2 waits for worker-2 at apply of step 13"
    ]
    assert not told(actions, Healed)


def test_a_link_fault_whose_end_the_run_left_behind_is_taken_off() -> None:
    until = "until: {role: worker-3, step: 7, phase: reduce}"
    play = Play(
        scenario_of(
            "- {kind: latency, delay_ms: 5, pairs: [[worker-1, worker-2]],"
            f" trigger: {{role: coordinator, step: 5, phase: opened}}, {until}}}"
        )
    )
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    assert UndoLinkFault("1-latency") in play.opened(200, 8)


def test_time_triggers_count_from_the_first_open() -> None:
    play = Play(
        scenario_of(
            "- {kind: kill, target: worker-2, trigger: {at_ms: 25}}\n"
            "- {kind: pause, target: worker-2, trigger: {at_ms: 30}, for_ms: 10}",
            "fixed: false",
        )
    )
    assert [str(action) for action in play.opened(40, 1)] == [
        "DriverSetTimer(name='1-kill-worker-2:start', after_ms=25.0)",
        "DriverSetTimer(name='2-pause-worker-2:start', after_ms=30.0)",
    ]
    assert play.opened(50, 2) == []
    actions = play.feed(65, DriverTimer("1-kill-worker-2:start"))
    assert actions[0] == Kill("worker-2")
    assert not any(isinstance(action, FreezeTimers) for action in actions)
    play.exit(66, "worker-2")
    assert missed(play.feed(70, DriverTimer("2-pause-worker-2:start"))) == [
        "2-pause-worker-2: worker-2 was not running"
    ]


def test_two_kills_freeze_once_and_thaw_when_both_are_gone() -> None:
    play = Play(load_scenario("two-killed"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.offer")
    play.stand(91, "worker-4", "5.ready")
    play.exit(92, "worker-2")
    play.exit(93, "worker-4")
    names = [line.strip() for line in play.lines]
    assert [name for name in names if name in ("FreezeTimers", "ThawTimers")] == ["FreezeTimers", "ThawTimers"]


def test_faults_at_one_point_act_in_order_and_the_death_comes_last() -> None:
    here = "trigger: {role: coordinator, step: 5, phase: tell}"
    play = Play(
        scenario_of(
            "- {kind: kill, target: coordinator, trigger: {step: 5, phase: tell}}\n"
            f"- {{kind: reset, pairs: [[worker-1, worker-2]], {here}}}"
        )
    )
    play.opened(40, 1)
    kinds = [type(action) for action in play.stand(90, "coordinator", "5.tell")]
    assert kinds[0] is ApplyLinkFault
    assert kinds.index(Kill) > kinds.index(UndoLinkFault)
    assert ReleaseHold not in kinds


def test_facts_repeated_from_the_log_move_nothing() -> None:
    play = Play(load_scenario("kill-coordinator-tell"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.tell")
    play.exit(95, "coordinator")
    play.launch(400, "coordinator")
    for step in range(1, 6):
        assert play.opened(410, step) == []
    assert told(play.fact(420, Recovered(2, 4, 2, "apply")), FaultUndone)


def test_a_hold_that_the_driver_does_not_know_is_released() -> None:
    play = Play(load_scenario("clean"))
    assert play.feed(5, RoleStood("worker-1", "left.over")) == [ReleaseHold("worker-1", "left.over")]


def test_the_same_events_give_the_same_actions() -> None:
    for seed in range(30):
        texts = []
        for _ in range(2):
            play = Play(random_scenario(seed, "sim", "ps"), "ps")
            for step in range(1, 8):
                play.opened(40 + step, step)
            play.feed(60, RoleExited("worker-1", 1, 3))
            texts.append(play.text)
        assert texts[0] == texts[1]


def test_time_does_not_go_back() -> None:
    play = Play(load_scenario("clean"))
    with pytest.raises(AssertionError, match="time does not go back"):
        play.opened(0.5, 1)


def test_only_the_coordinators_facts_count() -> None:
    play = Play(load_scenario("kill-worker"))
    from chaos.actions import RoleObserved

    assert play.feed(5, RoleObserved("worker-1", Opened(9, 1, 0, {}, 0))) == []


def test_workers_that_are_cut_off_may_miss_a_deadline() -> None:
    play = Play(load_scenario("partition-heal"))
    play.opened(40, 1)
    play.stand(90, "coordinator", "5.opened")
    assert missed(play.closed(1600, 5, ((3, "deadline"), (4, "deadline")))) == []


def test_a_worker_that_comes_in_at_another_step_is_told() -> None:
    play = Play(load_scenario("relaunch"))
    play.opened(40, 1)
    play.stand(90, "worker-2", "5.reduce")
    play.exit(95, "worker-2")
    play.launch(600, "worker-2")
    lines = missed(play.fact(700, Proven(2, 5, 6, 2, "", "")))
    assert lines == ["1-kill-worker-2: worker-2 takes part from step 7 on, not from step 9"]
    assert missed(play.opened(710, 9)) == []


def test_a_machine_that_takes_long_to_start_anybody_is_no_run_that_stands_still() -> None:
    play = Play(load_scenario("clean"), begun=False)
    play.feed(0, RunBegan())
    waited = play.feed(100_000, DriverTimer("watchdog"))
    assert [type(action) for action in waited] == [DriverSetTimer]
    play.launch(100_001, "coordinator")
    aborted = play.feed(200_000, DriverTimer("watchdog"))
    assert any(isinstance(action, AbortRun) for action in aborted)
