"""The host: it numbers records, keeps them until they are stored, and makes its role stand at an armed hold."""

from __future__ import annotations

import weakref

import numpy as np
import pytest

from services.config import PARAMETERS_MAX
from services.events import (
    VERIFIER,
    Effect,
    Event,
    Heard,
    Linked,
    Note,
    Persist,
    Persisted,
    Phase,
    Received,
    Record,
    Send,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Unlinked,
)
from services.fact_codec import fact_from_numbered
from services.host import (
    FIRST_LINK_MS,
    FIRST_LINK_TIMER,
    KEPT_BYTES_MAX,
    REPORT_TIMER,
    Hold,
    HoldReached,
    Host,
    HostEffect,
    Observed,
    Recorder,
)
from services.messages import Report, Stored
from services.records import Admitted, Durable, Reduced
from services.shell.options import TransportOptions
from training.disk import AppendFile, SyncFile

FACT = Admitted(1, 1, "n")


class Script:
    """A role that answers each event with the next list of effects."""

    def __init__(self, *answers: list[Effect]) -> None:
        self.answers = list(answers)
        self.heard: list[Event] = []

    def handle(self, now_ms: float, event: Event) -> list[Effect]:
        self.heard.append(event)
        return self.answers.pop(0) if self.answers else []


def reports(effects: list[HostEffect]) -> list[tuple[int, ...]]:
    return [
        tuple(record.sequence for record in effect.message.records)
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.message, Report)
    ]


def stored(through: int, launch: int = 1) -> Received:
    return Received(VERIFIER, 1, Stored("worker-1", launch, through))


def test_records_travel_together_after_a_short_wait() -> None:
    host = Host("worker-1", 1, Script([], [Record(FACT)], [Record(FACT)]))
    assert reports(host.handle(0, Linked(VERIFIER, 1))) == [()]
    first = host.handle(1, TimerFired("a"))
    assert [effect for effect in first if isinstance(effect, SetTimer)] == [SetTimer(REPORT_TIMER, 5.0)]
    assert not any(isinstance(effect, SetTimer) for effect in host.handle(2, TimerFired("b")))
    assert reports(host.handle(6, TimerFired(REPORT_TIMER))) == [(1, 2)]
    assert host.unstored == 2
    host.handle(7, stored(1))
    assert host.unstored == 1
    host.handle(7, stored(2, launch=2))
    assert host.unstored == 1


def test_what_is_unstored_is_sent_again_behind_a_question() -> None:
    host = Host("worker-1", 1, Script([Record(FACT), Record(FACT)]))
    host.handle(0, TimerFired("a"))
    assert reports(host.handle(1, Linked(VERIFIER, 1))) == [(), (1, 2)]
    host.handle(2, Unlinked(VERIFIER, 1))
    host.handle(3, stored(1))
    assert reports(host.handle(4, Linked(VERIFIER, 2))) == [(), (2,)]


def test_a_hold_keeps_effects_and_events_until_it_is_released() -> None:
    role = Script([Note("before"), Phase("offer", 3), Note("after")], [Note("second")])
    host = Host("worker-1", 1, role)
    hold = Hold("h", "worker-1", 3, "offer")
    host.arm(hold)
    assert host.handle(0, TimerFired("a")) == [Note("before"), HoldReached(hold)]
    assert host.handle(1, TimerFired("b")) == []
    assert host.handle(1, Heard("x", 1)) == []
    assert len(role.heard) == 1
    assert host.release(2, "other") == []
    assert host.release(2, "h") == [Note("after"), Note("second")]
    assert role.heard == [TimerFired("a"), TimerFired("b")]


def test_a_standing_hold_is_told_only_when_everything_recorded_is_stored() -> None:
    host = Host("worker-1", 1, Script([], [Record(FACT), Phase("offer", 3)]))
    host.arm(Hold("h", "worker-1", 3, "offer"))
    host.handle(0, Linked(VERIFIER, 1))
    effects = host.handle(1, TimerFired("a"))
    assert reports(effects) == [(1,)]
    assert not any(isinstance(effect, HoldReached) for effect in effects)
    assert [type(effect) for effect in host.handle(2, stored(1))] == [HoldReached]


def test_with_no_verifier_in_reach_a_hold_is_told_at_once() -> None:
    host = Host("worker-1", 1, Script([], [Record(FACT), Phase("offer", 3)]))
    host.arm(Hold("h", "worker-1", 3, "offer"))
    host.handle(0, Linked(VERIFIER, 1))
    host.handle(1, TimerFired("a"))
    assert [type(effect) for effect in host.handle(2, Unlinked(VERIFIER, 1))] == [HoldReached]


def test_holds_are_met_one_after_the_other_and_each_once() -> None:
    role = Script([Phase("open", 1), Phase("reduce", 1, 2), Note("end")], [Phase("open", 1), Note("again")])
    host = Host("worker-1", 1, role)
    first, second = Hold("1", "worker-1", 1, "open"), Hold("2", "worker-1", 1, "reduce", 2)
    host.arm(first)
    host.arm(second)
    assert host.handle(0, TimerFired("a")) == [HoldReached(first)]
    assert host.release(1, "1") == [HoldReached(second)]
    assert host.release(2, "2") == [Note("end")]
    assert host.handle(3, TimerFired("b")) == [Note("again")]


def test_a_watch_point_is_told_and_does_not_keep_the_role() -> None:
    watch = Hold("w", "worker-1", 1, "open", stand=False)
    host = Host("worker-1", 1, Script([Phase("open", 1), Note("end")]))
    host.arm(watch)
    assert host.handle(0, TimerFired("a")) == [HoldReached(watch), Note("end")]


def test_a_hold_that_is_released_before_it_is_reached_is_disarmed() -> None:
    host = Host("worker-1", 1, Script([Phase("open", 1), Note("end")]))
    host.arm(Hold("h", "worker-1", 1, "open"))
    assert host.release(0, "h") == []
    assert host.handle(1, TimerFired("a")) == [Note("end")]


def test_what_became_durable_is_recorded_before_the_role_hears_of_it() -> None:
    persist = Persist("t", (AppendFile("log", b"x"), SyncFile("log")), "open 1")
    host = Host("coordinator", 1, Script([], [persist], [Record(FACT), Stop("finished")]))
    host.handle(0, Linked(VERIFIER, 1))
    host.handle(0, TimerFired("a"))
    effects = host.handle(1, Persisted("t"))
    (report,) = [effect.message for effect in effects if isinstance(effect, Send)]
    assert isinstance(report, Report)
    facts = [fact_from_numbered(record) for record in report.records]
    assert facts == [Durable("open 1", {"append": 1, "sync_file": 1}), FACT]
    assert [effect.fact for effect in effects if isinstance(effect, Observed)] == [FACT]


def test_at_the_end_records_do_not_wait() -> None:
    host = Host("worker-1", 1, Script([], [Record(FACT), Stop("finished")]))
    host.handle(0, Linked(VERIFIER, 1))
    assert reports(host.handle(1, TimerFired("a"))) == [(1,)]


def test_without_a_verifier_facts_are_counted_and_let_go() -> None:
    recorder = Recorder("worker-1", 1, evidence=False)
    for _ in range(3):
        recorder.add(FACT)
    assert (recorder.last, recorder.pending, recorder.unstored, recorder.report()) == (3, 0, 0, [])


def test_what_needs_its_evidence_stored_is_sent_when_that_is() -> None:
    saying = SendStored("coordinator", Stored("worker-1", 1, 99))
    host = Host("worker-1", 1, Script([], [Record(FACT), saying], [Record(FACT)]))
    host.handle(0.0, Linked(VERIFIER, 0))
    out = host.handle(1.0, TimerFired("go"))
    assert reports(out) == [(1,)]  # at once: somebody waits for it
    assert Send("coordinator", saying.message) not in out
    assert Send("coordinator", saying.message) not in host.handle(2.0, TimerFired("more"))
    assert host.handle(3.0, Received(VERIFIER, 1, Stored("worker-1", 1, 0))) == []
    assert host.handle(4.0, Received(VERIFIER, 1, Stored("worker-1", 1, 1))) == [Send("coordinator", saying.message)]


def test_nobody_waits_for_a_verifier_that_is_away() -> None:
    saying = SendStored("coordinator", Stored("worker-1", 1, 99))
    host = Host("worker-1", 1, Script([], [Record(FACT), saying], [], [Record(FACT), saying]))
    host.handle(0.0, Linked(VERIFIER, 0))
    host.handle(1.0, TimerFired("go"))
    assert Send("coordinator", saying.message) in host.handle(2.0, Unlinked(VERIFIER, 0))
    assert Send("coordinator", saying.message) in host.handle(3.0, TimerFired("again"))


def test_the_first_link_with_the_verifier_is_waited_for_but_not_for_ever() -> None:
    """Or who dies early, on a busy machine, has taken part in a commit of which it left no evidence."""
    saying = SendStored("coordinator", Stored("worker-1", 1, 99))
    said = Send("coordinator", saying.message)
    hold = Hold("h", "worker-1", 3, "offer")

    def waiting() -> Host:
        host = Host("worker-1", 1, Script([Record(FACT), saying, Phase("offer", 3)]))
        host.arm(hold)
        out = host.handle(0.0, TimerFired("go"))
        assert SetTimer(FIRST_LINK_TIMER, FIRST_LINK_MS) in out
        assert said not in out
        assert HoldReached(hold) not in out
        return host

    linked = waiting()
    assert reports(linked.handle(1.0, Linked(VERIFIER, 1))) == [(), (1,)]  # behind a question
    assert linked.handle(2.0, stored(1)) == [said, HoldReached(hold)]
    assert linked.handle(FIRST_LINK_MS, TimerFired(FIRST_LINK_TIMER)) == []
    assert waiting().handle(FIRST_LINK_MS, TimerFired(FIRST_LINK_TIMER)) == [said, HoldReached(hold)]


def test_arrays_that_are_let_go_are_gone(monkeypatch: pytest.MonkeyPatch) -> None:
    """With no verifier for long, what is kept in memory is bounded: facts stay, the oldest arrays do not."""
    monkeypatch.setattr("services.host.KEPT_BYTES_MAX", 1600)
    recorder = Recorder("worker-1", 1)
    arrays = [np.zeros(100) for _ in range(4)]
    alive = [weakref.ref(array) for array in arrays]
    while arrays:
        recorder.add(Reduced(1, 1, len(arrays), 0, 1, "d", (1,), arrays.pop()))
    assert [array() is not None for array in alive] == [True, True, False, False]
    assert [record.sequence for record in recorder.report()[0].records] == [1, 2, 3, 4]


def test_kind_15_reports_are_cut_by_bytes_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("services.host.REPORT_BYTES_MAX", 2000)
    recorder = Recorder("worker-1", 1)
    for step, elements in enumerate((100, 100, 100, 400, 10, 10), start=1):  # 800 bytes each of the first
        recorder.add(Reduced(1, 1, step, 0, 1, "d", (1,), np.zeros(elements)))
    cuts = [tuple(record.sequence for record in report.records) for report in recorder.report()]
    assert cuts == [(1, 2), (3,), (4,), (5, 6)]
    assert cuts == [tuple(record.sequence for record in report.records) for report in recorder.again()[1:]]


def test_kind_15_the_largest_model_starts_with_one_record_that_is_kept_and_can_be_sent() -> None:
    record_bytes = 2 * 8 * PARAMETERS_MAX
    assert record_bytes <= KEPT_BYTES_MAX < TransportOptions().message_bytes_max - 2**20
