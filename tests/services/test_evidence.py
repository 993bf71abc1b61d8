"""Whatever is missing makes the verdict unknown, and says what."""

from __future__ import annotations

import dataclasses
from typing import Any

import pytest

from chaos.expect import Expect
from services.arrivals import Arrivals
from services.evidence import PROMISED
from services.fact_codec import fact_to_numbered
from services.history import Damage, HistoryLine
from services.invariants.base import Invariant
from services.judge import DATA_PARALLEL, Judge, broken_document
from services.lineage import Entry, worker_role
from services.records import (
    Committed,
    Contributed,
    Died,
    Ended,
    Expectation,
    FaultActed,
    FaultArmed,
    FaultMissed,
    Healed,
    Opened,
    Reduced,
    Refused,
    RunStarted,
    StateApplied,
)
from tests.services.honest_run import HonestRun, Plan, end_line, not_passed
from tests.services.invariants.caught import assert_unknown


def judge_lines(run: HonestRun, lines: list[HistoryLine]) -> dict[str, Any]:
    judge = Judge(run.dataset)
    for line in lines:
        judge.feed(line)
    return judge.finish()


def reasons(document: dict[str, Any]) -> str:
    return "; ".join(document["reasons"])


def test_an_empty_history() -> None:
    document = Judge(HonestRun(Plan(steps=1)).dataset).finish()
    assert document["verdict"] == "unknown"
    assert "the history is empty" in reasons(document)


def test_a_missing_end() -> None:
    assert_unknown(HonestRun(), "no end record", end=False)


def test_a_missing_middle() -> None:
    run = HonestRun()
    lines = run.lines()[:-1]
    middle = next(
        place for place, line in enumerate(lines) if line.source == "worker-2" and line.kind == "StateApplied"
    )
    lines = [dataclasses.replace(line, seq=seq) for seq, line in enumerate(lines[:middle] + lines[middle + 1 :], 1)]
    document = judge_lines(run, [*lines, end_line(lines)])
    assert document["verdict"] == "unknown"
    assert "of worker-2 (launch 1) where" in reasons(document)


@pytest.mark.parametrize("excuse", ["", "excused: exit -9"])
def test_a_missing_tail_needs_an_excuse(excuse: str) -> None:
    run = HonestRun()
    lines = run.lines()[:-1]
    last = max(place for place, line in enumerate(lines) if line.source == "worker-2")
    kept = [dataclasses.replace(line, seq=seq) for seq, line in enumerate(lines[:last] + lines[last + 1 :], 1)]
    end = end_line(kept, {"worker-2/1": excuse} if excuse else {})
    body = Ended(len(kept), {"worker-2/1": lines[last].number}, {"worker-2/1": excuse} if excuse else {})
    end = dataclasses.replace(end, body_json=fact_to_numbered(body, 1).body_json)
    document = judge_lines(run, [*kept, end])
    assert document["verdict"] == ("pass" if excuse else "unknown"), document["reasons"]
    assert excuse or "nothing excuses it" in reasons(document)


def test_a_member_that_never_reported() -> None:
    run = HonestRun(Plan(whole=False))
    run.told = [told for told in run.told if told.source != "worker-3"]
    assert_unknown(run, "worker-3 took part and never reported")


def test_an_end_record_that_counts_other_lines() -> None:
    run = HonestRun()
    lines = run.lines()[:-1]
    end = dataclasses.replace(end_line(lines[:-1]), seq=len(lines) + 1)
    assert "the end record counts" in reasons(judge_lines(run, [*lines, end]))


def test_a_reduced_value_that_never_came() -> None:
    document = HonestRun().drop(Reduced, step=3).judge()
    assert document["verdict"] == "unknown"
    assert (document["steps_committed"], document["steps_checked"]) == (6, 2)
    assert "2 of 6 committed steps were checked; the first that was not: 3" in reasons(document)


def test_a_lost_contribution_is_excused_by_a_death() -> None:
    run = HonestRun(Plan(dies={5: 2})).drop(Contributed, step=4, worker=2)
    run.drop(StateApplied, step=4, worker=2).drop(Contributed, step=5, worker=2)
    document = run.judge()
    assert document["verdict"] == "pass", (document["reasons"], not_passed(document))
    assert run.places(Died)


def test_a_start_whose_state_was_not_recorded() -> None:
    assert_unknown(HonestRun().replace(RunStarted, {}, parameters=None, velocity=None), "was not recorded")


def test_another_dataset() -> None:
    run = HonestRun()
    run.dataset = HonestRun(Plan(samples=41)).dataset
    assert_unknown(run, "the dataset at hand is")


def test_bytes_that_are_no_dataset() -> None:
    run = HonestRun()
    run.dataset = b"\0" * 40
    assert_unknown(run, "cannot be read")


ARMED = FaultArmed("1-kill-worker-2", "kill", "worker-2", {"step": 2})


@pytest.mark.parametrize(
    ("facts", "words"),
    [
        ([ARMED], "no witness that it acted"),
        ([ARMED, FaultActed(ARMED.fault, {})], "no witness that it acted"),
        ([ARMED, FaultMissed(ARMED.fault, "step 2 went by")], "never acted: step 2 went by"),
    ],
    ids=["silent", "without a witness", "missed"],
)
def test_a_fault_without_effect(facts: list[Any], words: str) -> None:
    run = HonestRun()
    for fact in facts:
        run.insert_before(Opened, {"step": 3}, "driver", fact)
    assert_unknown(run, words)


def test_a_fault_with_a_witness() -> None:
    run = HonestRun()
    run.insert_before(Opened, {"step": 3}, "driver", ARMED)
    run.insert_before(Opened, {"step": 3}, "driver", FaultActed(ARMED.fault, {"exit_code": -9}))
    run.insert_before(Opened, {"step": 4}, "driver", Healed(1000.0, 2))
    assert run.replace(Expectation, {}, promises={"kills": 1}).judge()["verdict"] == "pass"


@pytest.mark.parametrize("name", ["random-kills", "sweeping", "random"])
def test_a_scenario_that_only_sounds_drawn_must_reach_its_faults_and_keep_its_promises(name: str) -> None:
    run = HonestRun().insert_before(Opened, {"step": 3}, "driver", FaultMissed(ARMED.fault, "too late"))
    run.replace(Expectation, {}, scenario=name, promises={"kills": 1})
    assert_unknown(run, "never acted")
    assert_unknown(run, "promises kills 1, there were 0")


def test_a_fault_that_a_sweep_did_not_reach_is_observed() -> None:
    run = HonestRun().replace(Expectation, {}, scenario="random-17")
    run.insert_before(Opened, {"step": 3}, "driver", ARMED)
    run.insert_before(Opened, {"step": 3}, "driver", FaultMissed(ARMED.fault, "step 2 went by"))
    document = run.judge()
    assert document["verdict"] == "pass"
    assert document["observations"][-1]["kind"] in ("fault not reached", "loss rising")
    assert "fault not reached" in [seen["kind"] for seen in document["observations"]]


@pytest.mark.parametrize(
    "promises",
    [{name: 2} for name in PROMISED],
    ids=lambda promises: next(iter(promises)),
)
def test_a_promise_that_was_not_kept(promises: dict[str, Any]) -> None:
    assert_unknown(HonestRun().replace(Expectation, {}, promises=promises), "the scenario promises")


def test_every_promise_that_a_scenario_can_make_is_judged() -> None:
    elsewhere = {"refused_stale", "condition", "exit_code"}  # by fencing, by liveness, and it follows from the verdict
    assert set(PROMISED) | elsewhere == set(Expect.model_fields)


def test_who_came_in_and_back() -> None:
    arrivals = Arrivals()
    for member, incarnation in ((1, 1), (2, 2), (2, 2), (3, 3), (2, 4), (3, 5), (3, 6), (4, 7)):
        arrivals.proved(member, incarnation)
    launches = [("worker-1", 1), ("worker-2", 1), ("worker-3", 1), ("worker-3", 2), ("worker-4", 1)]
    assert arrivals.counts(3, launches, worker_role) == {"relaunches": 1, "returns": 2, "joins": 1}


def test_an_accuracy_that_was_promised_and_reached() -> None:
    document = HonestRun().replace(Expectation, {}, promises={"min_accuracy": 1.0}).judge()
    assert (document["final"]["test_accuracy"], document["verdict"]) == (1.0, "pass")


def test_a_late_gradient_that_was_promised_and_refused() -> None:
    run = HonestRun().replace(Expectation, {}, promises={"refused_late": 1})
    run.insert_before(Opened, {"step": 3}, "coordinator", Refused("Offer", "worker-2", 2, 1, 2, "late", 1))
    assert run.judge()["verdict"] == "pass"


class Breaks(Invariant):
    name = "breaks"
    watches = (StateApplied,)

    def on_fact(self, entry: Entry) -> None:
        raise ZeroDivisionError("a bug of ours")


def test_a_checker_that_breaks_is_unknown() -> None:
    run = HonestRun()
    judge = Judge(run.dataset, (*DATA_PARALLEL, Breaks))
    for line in run.lines():
        judge.feed(line)
    document = judge.finish()
    assert not_passed(document) == {"breaks": "unknown"}
    assert document["verdict"] == "unknown"
    assert "a bug of ours" in document["invariants"][-1]["reasons"][0]


def test_a_violation_is_worse_than_unknown() -> None:
    run = HonestRun().replace(StateApplied, {"step": 3, "worker": 2}, velocity_digest="0" * 64)
    assert run.judge(end=False)["verdict"] == "violated"


@pytest.mark.parametrize("body", ["", "{", "[]", "{}", '{"step":"x"}', '{"worker":1}}', "null"])
def test_a_body_that_cannot_be_read(body: str) -> None:
    run = HonestRun(Plan(steps=1))
    lines = run.lines()
    place = next(place for place, line in enumerate(lines) if line.kind == "StateApplied")
    lines[place] = dataclasses.replace(lines[place], body_json=body)
    assert judge_lines(run, lines)["verdict"] == "unknown"


def test_damage_is_told() -> None:
    run = HonestRun()
    judge = Judge(run.dataset)
    judge.damaged(Damage(4, "crc", "the CRC does not fit the line"))
    for line in run.lines():
        judge.feed(line)
    document = judge.finish()
    assert document["verdict"] == "unknown"
    assert document["history"]["damage"] == [{"line": 4, "kind": "crc", "what": "the CRC does not fit the line"}]


def test_a_judge_that_is_gone_leaves_a_document() -> None:
    document = broken_document("MemoryError")
    assert document["verdict"] == "unknown"
    assert "the judge broke: MemoryError" in reasons(document)


@pytest.mark.parametrize("source", ["worker-1", "driver", "server"])
def test_what_is_not_ones_own_to_tell(source: str) -> None:
    run = HonestRun()
    told = run.told[run.places(StateApplied, step=3, worker=2)[0]].fact
    run.insert_before(Opened, {"step": 4}, source, told)
    assert_unknown(run, f"{source} told StateApplied, which is not its to tell")


def test_only_the_coordinator_decides() -> None:
    run = HonestRun()
    run.insert_before(Opened, {"step": 4}, "worker-1", Died(2, 2, "link broken", 3))
    assert_unknown(run, "worker-1 told Died")


@pytest.mark.parametrize(
    ("reason", "told"), [("conflict", True), ("contract", True), ("late", False), ("duplicate", False)]
)
def test_who_was_refused_for_what_no_honest_member_says_is_observed_by_name(reason: str, told: bool) -> None:
    run = HonestRun()
    for _ in range(2):
        refused = Refused("Offer", "worker-3", 3, 1, 2, reason, 1)
        run.insert_before(Committed, {"step": 2}, "coordinator", refused)
    document = run.judge()
    assert document["verdict"] == "pass", document["reasons"]
    kind = "message against the contract refused"
    seen = [entry for entry in document["observations"] if entry["kind"] == kind]
    what = f"coordinator refused its Offer: {reason}"
    expected = {"kind": kind, "count": 2, "first_step": 2, "role": "worker-3", "what": what}
    assert seen == ([expected] if told else [])
