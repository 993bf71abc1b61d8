"""The driver of a testbed that stands: it sets the pace, puts faults on and off, and never gives up by itself."""

from __future__ import annotations

import pytest

from chaos.actions import (
    AbortRun,
    Action,
    ApplyLinkFault,
    ArmHold,
    DriverTimer,
    Kill,
    Launch,
    LinkMeasured,
    ReleaseHold,
    Resume,
    RoleExited,
    RoleLaunched,
    RoleObserved,
    RoleStood,
    RunBegan,
    Suspend,
    Tell,
    UndoLinkFault,
)
from chaos.by_hand import HandDriver
from chaos.hand_words import hand_fault
from services.events import COORDINATOR
from services.records import FaultActed, FaultUndone, Healed, Opened, Proven
from testbed.hand.request import standing_scenario

ROLES = ("coordinator", "worker-1", "worker-2", "verifier")


@pytest.fixture
def driver() -> HandDriver:
    """Of two workers, all up, step 1 open."""
    made = HandDriver(standing_scenario(2, "ring"), "ring", pace_ms=500.0)
    made.handle(0.0, RunBegan())
    for role in ROLES:
        made.handle(1.0, RoleLaunched(role, 1))
    opened(made, 1)
    return made


def opened(driver: HandDriver, step: int, now_ms: float = 2.0) -> list[Action]:
    return driver.handle(now_ms, RoleObserved(COORDINATOR, Opened(step, 1, 1, {}, 0)))


def told(actions: list[Action]) -> list[type]:
    return [type(action.fact) for action in actions if isinstance(action, Tell)]


def test_the_coordinator_stands_before_every_step_for_the_pace(driver: HandDriver) -> None:
    armed = [action.hold for action in opened(driver, 2) if isinstance(action, ArmHold)]
    assert [(hold.role, hold.step, hold.phase) for hold in armed] == [(COORDINATOR, 3, "opened")]
    stood = driver.handle(3.0, RoleStood(COORDINATOR, armed[0].name))
    assert [(action.name, action.after_ms) for action in stood] == [("pace", 500.0)]  # type: ignore[union-attr]
    assert driver.handle(503.0, DriverTimer("pace")) == [ReleaseHold(COORDINATOR, armed[0].name)]


def test_at_rest_it_opens_nothing_until_it_goes_on(driver: HandDriver) -> None:
    driver.handle(3.0, RoleStood(COORDINATOR, "pace.2"))
    driver.rest()
    assert driver.handle(503.0, DriverTimer("pace")) == []
    assert driver.go_on() == [ReleaseHold(COORDINATOR, "pace.2")]


def test_a_coordinator_that_comes_back_is_paced_again(driver: HandDriver) -> None:
    opened(driver, 2)
    driver.handle(4.0, RoleLaunched(COORDINATOR, 1))
    assert [action for action in opened(driver, 2, 5.0) if isinstance(action, ArmHold)]


def test_a_fault_of_a_link_from_hand_to_healed(driver: HandDriver) -> None:
    name, actions = driver.inject(10.0, hand_fault(("w1→w2", "latency", "100ms"), ROLES))
    applied = [action for action in actions if isinstance(action, ApplyLinkFault)]
    assert [(one.source, one.target, one.settings) for one in applied] == [
        ("worker-1", "worker-2", {"delay_ms": 100.0})
    ]
    acted = driver.handle(500.0, LinkMeasured(name, "during", {"delay_ms": 101.0}))
    assert told(acted) == [FaultActed]
    assert list(driver.active_faults) == [name]
    assert UndoLinkFault(name) in driver.heal(600.0)
    assert told(driver.handle(900.0, LinkMeasured(name, "after", {"delay_after_ms": 0.3}))) == [FaultUndone]
    assert not driver.active_faults


def test_who_was_killed_stays_out_until_healed(driver: HandDriver) -> None:
    name, actions = driver.inject(10.0, hand_fault(("w2", "kill"), ROLES))
    assert Kill("worker-2") in actions
    after = driver.handle(20.0, RoleExited("worker-2", 1, 137))
    assert told(after) == [FaultActed, FaultUndone]
    assert driver.state_of(name) == "undone"
    assert driver.heal(30.0) == [Launch("worker-2")]


def test_healed_again_while_it_is_on_its_way_it_is_not_started_twice(driver: HandDriver) -> None:
    driver.inject(10.0, hand_fault(("w2", "kill"), ROLES))
    driver.handle(20.0, RoleExited("worker-2", 1, 137))
    assert driver.heal(30.0) == [Launch("worker-2")]
    assert driver.absent == ("worker-2",)
    assert driver.heal(40.0) == []
    driver.handle(50.0, RoleExited("worker-2", 2, 1))  # it did not come up
    assert driver.heal(60.0) == [Launch("worker-2")]
    driver.handle(70.0, RoleLaunched("worker-2", 3))
    assert not driver.absent
    assert driver.heal(80.0) == []


def test_a_pause_lasts_until_healed(driver: HandDriver) -> None:
    _, actions = driver.inject(10.0, hand_fault(("w1", "pause"), ROLES))
    assert Suspend("worker-1") in actions
    healed = driver.heal(5000.0)
    assert Resume("worker-1") in healed
    assert told(healed) == [FaultActed, FaultUndone]


def test_names_are_told_apart(driver: HandDriver) -> None:
    words = ("w1→w2", "latency", "100ms")
    names = [driver.inject(10.0, hand_fault(words, ROLES))[0] for _ in range(2)]
    assert names == ["1-latency", "2-latency"]


def test_nothing_but_the_coordinators_own_death_ends_it(driver: HandDriver) -> None:
    assert not [one for one in driver.handle(1e7, DriverTimer("watchdog")) if isinstance(one, AbortRun)]
    assert driver.handle(1e7, RoleExited("worker-1", 1, 1)) == []
    assert driver.heal(1e7) == [Launch("worker-1")]
    ended = driver.handle(1e7, RoleExited(COORDINATOR, 1, 1))
    assert [type(one) for one in ended if isinstance(one, AbortRun)] == [AbortRun]


def test_it_never_says_that_all_is_healed_and_ends_when_told(driver: HandDriver) -> None:
    name, _ = driver.inject(10.0, hand_fault(("w1→w2", "partition"), ROLES))
    assert Healed not in told(opened(driver, 2, 15.0) + driver.heal(20.0))
    ended = driver.end("taken down")
    assert ended[-1] == AbortRun("taken down")
    assert driver.handle(30.0, RoleExited(COORDINATOR, 1, 0)) == []
    assert driver.state_of(name) in ("undone", "missed")


def test_a_worker_is_added_and_from_then_on_healed_as_the_others(driver: HandDriver) -> None:
    name, actions = driver.inject(10.0, hand_fault(("w3", "add"), ROLES, ("worker-3",)))
    assert name == "1-add-worker-3"
    assert Launch("worker-3") in actions
    assert driver.absent == ("worker-3",)
    assert driver.heal(11.0) == []  # it is on its way
    up = driver.handle(12.0, RoleLaunched("worker-3", 1))
    assert told(up) == [FaultActed]
    assert told(opened(driver, 2, 13.0)) == []  # no step waits for it
    proved = driver.handle(14.0, RoleObserved(COORDINATOR, Proven(3, 3, 2, 2, "digest", "digest")))
    assert told(proved) == [FaultUndone]
    assert not driver.absent
    assert not driver.active_faults
    driver.inject(20.0, hand_fault(("w3", "kill"), (*ROLES, "worker-3")))
    driver.handle(21.0, RoleExited("worker-3", 1, 137))
    assert driver.heal(22.0) == [Launch("worker-3")]
