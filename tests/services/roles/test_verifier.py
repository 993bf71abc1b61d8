"""The verifier stores each record once and durably, judges what it stored, comes back, and concludes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable

import numpy as np
import pytest

from services.events import Received
from services.history import LINES_PATH, read_history
from services.judging import FeedJob, ReadBackJob
from services.messages import Conclude, Concluded, EvidenceStored, Numbered, Report, WantEvidence
from services.records import Reduced, StateApplied
from services.roles.judge_queue import VerifierOptions
from services.verify import verify
from tests.services.honest_run import HonestRun, Plan, not_passed
from tests.services.roles.verifier_bench import Bench, expected_of, records_of, report_all, save_dataset
from training.disk import AppendFile, LossyDisk, WriteFile


@pytest.fixture(scope="module")
def run() -> HonestRun:
    return HonestRun(Plan(steps=5, dies={3: 2}))


def lines_of(bench: Bench) -> list[tuple[str, int, int]]:
    history = read_history(bench.disk.read(LINES_PATH), bench.disk.read("history.arrays"))
    assert [item for item in history.damage if item.kind != "end"] == []
    return [(line.source, line.launch, line.number) for line in history.lines]


def test_an_honest_run_passes_and_a_rerun_says_the_same(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    report_all(bench, run, pieces=4)
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass", (document["reasons"], not_passed(document))
    assert document["steps_checked"] == 5
    assert json.loads(bench.disk.read("verdict.json")) == document
    assert verify(bench.disk) == document
    assert lines_of(bench)[-1][0] == "verifier"


def test_records_are_acknowledged_only_when_they_are_durable(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    bench.hold_persists = True
    records = records_of(run)["coordinator", 1]
    bench.report("coordinator", 1, records[:10])
    bench.report("coordinator", 1, records[10:20])
    bench.report("coordinator", 1, records[20:30])
    assert bench.stored("coordinator") == -1
    assert len(bench.held) == 1
    bench.release_persist()
    assert bench.stored("coordinator") == 10
    bench.release_persist()
    assert bench.stored("coordinator") == 30  # both went to the disk in one go
    bench.disk.crash(lambda _: 0)
    assert lines_of(bench) == [("coordinator", 1, number) for number in range(1, 31)]


def test_an_empty_report_is_answered(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    bench.report("coordinator", 1, [])
    assert bench.stored("coordinator") == 0
    bench.report("coordinator", 1, records_of(run)["coordinator", 1][:7])
    bench.report("coordinator", 1, [])
    assert bench.stored("coordinator") == 7


@pytest.mark.parametrize("seed", range(6))
def test_repeats_gaps_and_overlaps_leave_each_record_once(run: HonestRun, seed: int) -> None:
    random = np.random.default_rng(seed)
    bench = Bench(run.dataset)
    left = records_of(run)
    while left:
        place = sorted(left)[int(random.integers(len(left)))]
        start = int(random.integers(0, len(left[place])))
        bench.report(*place, left[place][start : start + int(random.integers(1, 9))])
        if random.random() < 0.5:  # what a reporter does after a reconnect
            bench.report(*place, [])
            stored = max(0, bench.stored(*place))
            bench.report(*place, left[place][stored : stored + 20])
        if bench.stored(*place) == len(left[place]):
            del left[place]
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass", document["reasons"]
    assert len(set(lines_of(bench))) == len(lines_of(bench))


def test_nobody_reports_in_the_name_of_another(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    bench.give(Received("worker-3", 3, Report("worker-1", 1, tuple(records_of(run)["worker-1", 1]))))
    assert "not taken" in bench.notes[0]
    assert not bench.disk.exists(LINES_PATH)


def test_nobody_but_the_driver_says_who_is_excused(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    report_all(bench, run)
    excuses = json.dumps({"worker-2": {"1": "excused: trust me"}})
    bench.give(Received("worker-2", 2, Conclude(excuses)))
    bench.pass_time(10_000.0)
    assert not any(isinstance(message, Concluded) for _, message in bench.sent)
    assert "worker-2 wants to end the history" in bench.notes[-1]
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass"


def test_a_body_that_would_break_its_line_is_not_taken() -> None:
    bench = Bench(HonestRun(Plan(steps=1)).dataset)
    bench.report("worker-1", 1, [Numbered(1, "Died", '{"a":\n1}')])
    assert not bench.disk.exists(LINES_PATH)
    assert bench.stored("worker-1") == 0


def test_a_full_disk_stops_it_by_name(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    bench.fail_with = "ENOSPC"
    report_all(bench, run)
    assert bench.stopped is not None
    assert bench.stopped.condition == "disk ENOSPC"
    assert bench.stored("coordinator") == -1


def test_it_stands_before_and_after_the_disk(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    report_all(bench, run)
    assert [step for name, step in bench.phases if name == "unstored"] == [1, 2, 3, 4, 5]
    assert [step for name, step in bench.phases if name == "stored"] == [1, 2, 3, 4, 5]


# ---------------------------------------------------------------- missing values


def test_a_value_that_does_not_come_is_asked_of_the_next_contributor(run: HonestRun) -> None:
    records = records_of(run)
    missing = next(place for place, item in enumerate(records["worker-1", 1]) if item.kind == "Reduced")
    value = records["worker-1", 1][missing]
    bench = Bench(run.dataset)
    bench.report("coordinator", 1, records["coordinator", 1])
    bench.report("worker-1", 1, records["worker-1", 1][:missing])
    bench.pass_time(2000)
    asked = [(to, message) for to, message in bench.sent if isinstance(message, WantEvidence) and message.step == 1]
    assert [to for to, _ in asked[:4]] == ["worker-3", "worker-1", "worker-3", "worker-1"]  # worker-2 is dead by then
    bench.report("worker-3", 1, [Numbered(1, "Reduced", value.body_json, value.arrays)])
    before = len(bench.sent)
    bench.pass_time(5000)
    assert not [
        message for _, message in bench.sent[before:] if isinstance(message, WantEvidence) and message.step == 1
    ]


def test_nobody_is_asked_for_ever(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    bench.report("coordinator", 1, records_of(run)["coordinator", 1])
    bench.pass_time(60_000)
    asked = [message.step for _, message in bench.sent if isinstance(message, WantEvidence)]
    assert 0 < len(asked) <= 5 * 4 * 3
    assert "evidence" not in bench.timers


def test_contributors_may_let_go_of_what_is_stored() -> None:
    run = HonestRun(Plan(steps=80, checkpoint_every=50))
    bench = Bench(run.dataset)
    report_all(bench, run)
    told = [(to, message.step) for to, message in bench.sent if isinstance(message, EvidenceStored)]
    assert {to for to, _ in told} == {"worker-1", "worker-2", "worker-3"}
    assert max(step for _, step in told) >= 48


# ---------------------------------------------------------------- the end


def test_it_waits_for_records_that_were_made(run: HonestRun) -> None:
    records = records_of(run)
    late = records["worker-3", 1][-3:]
    bench = Bench(run.dataset)
    for (source, launch), all_of_it in records.items():
        bench.report(source, launch, all_of_it[:-3] if source == "worker-3" else all_of_it)
    assert bench.conclude(expected_of(run)) is None
    bench.report("worker-3", 1, late)
    assert bench.verdict is not None
    assert bench.verdict["verdict"] == "pass"


def test_but_not_for_ever(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    for (source, launch), records in records_of(run).items():
        bench.report(source, launch, records[:-3] if source == "worker-3" else records)
    assert bench.conclude(expected_of(run)) is None
    bench.pass_time(10_000)
    assert bench.verdict is not None
    assert bench.verdict["verdict"] == "unknown"
    assert "worker-3 (launch 1)" in bench.verdict["reasons"][0]
    assert bench.stopped is not None
    assert bench.stopped.condition == "finished"


def test_a_killed_reporter_is_excused(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    for (source, launch), records in records_of(run).items():
        last = (
            next(place for place, item in enumerate(records) if item.kind == "Contributed")
            if source == "worker-2"
            else 0
        )
        bench.report(source, launch, records[: last + 2] if source == "worker-2" else records)
    expected = expected_of(run)
    expected["worker-2"] = {"1": "excused: killed"}
    document = bench.conclude(expected)
    assert document is not None
    assert document["verdict"] == "pass", document["reasons"]


def test_it_answers_again_when_it_is_asked_again(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    report_all(bench, run)
    first = bench.conclude(expected_of(run))
    bench.sent.clear()
    assert bench.conclude(expected_of(run)) == first


def test_a_violation_is_noted_while_the_run_goes_on() -> None:
    run = HonestRun(Plan(steps=5)).replace(StateApplied, {"step": 2, "worker": 2}, velocity_digest="0" * 64)
    bench = Bench(run.dataset)
    report_all(bench, run)
    assert any("violated at or before step" in note for note in bench.notes)


# ---------------------------------------------------------------- coming back


def _nothing(content: bytes) -> bytes:
    return content


def _torn(content: bytes) -> bytes:
    return content[:-30]


def _zero_filled(content: bytes) -> bytes:
    return content[:-200] + bytes(200)


@pytest.mark.parametrize("tear", [_nothing, _torn, _zero_filled])
@pytest.mark.parametrize("share", [0.0, 0.4, 1.0])
def test_it_comes_back_and_goes_on(run: HonestRun, share: float, tear: Callable[[bytes], bytes]) -> None:
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    for (source, launch), records in records_of(run).items():
        bench.report(source, launch, records[: int(share * len(records))])
    if bench.disk.exists(LINES_PATH):
        bench.disk.apply(WriteFile(LINES_PATH, tear(bench.disk.read(LINES_PATH))))
    bench.start()
    for (source, launch), records in records_of(run).items():
        bench.report(source, launch, [])
        bench.report(source, launch, records[max(0, bench.stored(source, launch)) :])
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass", document["reasons"]
    assert verify(bench.disk) == document
    assert len(set(lines_of(bench))) == len(lines_of(bench))


@pytest.mark.parametrize("choice", range(4))
def test_a_power_cut_loses_nothing_that_was_acknowledged(run: HonestRun, choice: int) -> None:
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    bench.hold_persists = True
    records = records_of(run)["coordinator", 1]
    bench.report("coordinator", 1, records[:10])
    bench.release_persist()
    bench.report("coordinator", 1, records[10:20])
    persist = bench.held.popleft()
    for operation in persist.operations:
        if isinstance(operation, AppendFile):  # written, and the power goes before the sync
            bench.disk.apply(operation)
    bench.disk.crash(lambda count: min(choice, count - 1) if count == 4 else count // 2)
    bench.hold_persists = False
    bench.start()
    bench.report("coordinator", 1, [])
    assert bench.stored("coordinator") >= 10


def test_after_its_end_it_says_the_same_again(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    report_all(bench, run)
    first = bench.conclude(expected_of(run))
    bench.start()
    bench.sent.clear()
    assert bench.conclude(expected_of(run)) == first


def test_damage_in_the_middle_is_kept_and_told(run: HonestRun) -> None:
    bench = Bench(run.dataset)
    save_dataset(bench.disk, run.dataset)
    report_all(bench, run)
    content = bytearray(bench.disk.read(LINES_PATH))
    content[len(content) // 2] ^= 1
    bench.disk.apply(WriteFile(LINES_PATH, bytes(content)))
    bench.start()
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "unknown"
    assert document["history"]["damage"]
    assert verify(bench.disk) == document


# ---------------------------------------------------------------- lag


def test_what_waits_for_the_judge_is_bounded_and_read_back(run: HonestRun) -> None:
    options = VerifierOptions(queue_lines_max=20, feed_lines_max=7)
    bench = Bench(run.dataset, options=options)
    save_dataset(bench.disk, run.dataset)
    bench.hold_persists = True
    report_all(bench, run)
    bench.release_persist()
    bench.hold_persists = False
    bench.release_persist()
    document = bench.conclude(expected_of(run))
    assert document is not None
    assert document["verdict"] == "pass", document["reasons"]
    assert any(isinstance(job, ReadBackJob) for job in bench.jobs)
    fed = [line.seq for job in bench.jobs if isinstance(job, FeedJob) for line in job.lines]
    assert fed == list(range(1, len(fed) + 1))
    assert max(len(job.lines) for job in bench.jobs if isinstance(job, FeedJob)) <= 7
    assert verify(bench.disk) == document


def test_a_run_folder_that_is_empty_is_unknown() -> None:
    document = verify(LossyDisk())
    assert document["verdict"] == "unknown"
    assert document["history"]["damage"][0]["kind"] == "empty"


def test_reduced_values_come_from_anybody() -> None:
    run = HonestRun(Plan(steps=3))
    run.replace(Reduced, {"step": 2}, worker=3, incarnation=3)
    place = run.places(Reduced, step=2)[0]
    run.told[place] = dataclasses.replace(run.told[place], source="worker-3")
    assert run.judge()["verdict"] == "pass"
