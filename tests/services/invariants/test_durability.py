"""What is told was durable before, one write for each, with everything synced."""

from __future__ import annotations

import pytest

from services.records import CheckpointWritten, Committed, Durable
from tests.services.honest_run import PUBLISHED, SAVED, HonestRun, Plan
from tests.services.invariants.caught import assert_caught

NAME = "durability"


@pytest.mark.parametrize("what", ["open 3", "close 3.0", "commit 3.0"])
def test_told_without_having_been_written(what: str) -> None:
    assert_caught(HonestRun().drop(Durable, what=what), NAME, 3, "coordinator", "before")


@pytest.mark.parametrize("what", ["generation 1", "admission 2.2", "start"])
def test_membership_told_without_having_been_written(what: str) -> None:
    assert_caught(HonestRun().drop(Durable, what=what), NAME, 0, "coordinator", "before")


def test_a_rollback_that_was_not_written() -> None:
    assert_caught(HonestRun(Plan(rolls_back_after=3)).drop(Durable, what="rollback 2"), NAME, 2)


def test_a_skip_that_was_not_written() -> None:
    assert_caught(HonestRun(Plan(spoils={3: 1})).drop(Durable, what="skip 3.0"), NAME, 3)


def test_told_before_it_was_written() -> None:
    run = HonestRun()
    durable, committed = run.places(Durable, what="commit 3.0")[0], run.places(Committed, step=3)[0]
    run.told[durable], run.told[committed] = run.told[committed], run.told[durable]
    assert_caught(run, NAME, 3, "coordinator", "Committed was told before 'commit 3.0' was durable")


def test_a_log_line_that_was_not_synced() -> None:
    run = HonestRun().replace(Durable, {"what": "commit 3.0"}, operations={"append": 1})
    assert_caught(run, NAME, 3, "coordinator", "synced 0")


def _checkpoint_of(run: HonestRun, step: int) -> str:
    told = run.told[run.places(CheckpointWritten, step=step)[0]].fact
    assert isinstance(told, CheckpointWritten)
    return told.name


@pytest.mark.parametrize("missing", ["sync_file", "sync_dir"])
def test_a_checkpoint_that_was_not_synced(missing: str) -> None:
    run = HonestRun()
    what = f"checkpoint 4 {_checkpoint_of(run, 4)}"
    run.replace(Durable, {"what": what}, operations={**SAVED, missing: SAVED[missing] - 1})
    assert_caught(run, NAME, 4, "worker-1")


def test_a_checkpoint_told_without_having_been_written() -> None:
    run = HonestRun()
    name = _checkpoint_of(run, 4)
    place = run.places(Durable, what=f"checkpoint 4 {name}")[0]
    written = run.places(CheckpointWritten, step=4)[0]
    run.told[place], run.told[written] = run.told[written], run.told[place]
    assert_caught(run, NAME, 4, "worker-1", "CheckpointWritten was told before")


@pytest.mark.parametrize("missing", ["sync_file", "sync_dir"])
def test_a_pointer_that_was_not_synced(missing: str) -> None:
    run = HonestRun()
    what = f"publish 4 {_checkpoint_of(run, 4)}"
    run.replace(Durable, {"what": what}, operations={**PUBLISHED, missing: PUBLISHED[missing] - 1})
    assert_caught(run, NAME, 4, "coordinator")


def test_what_a_coordinator_reads_in_its_log_is_durable() -> None:
    assert HonestRun(Plan(coordinator_returns_after=(3,))).judge()["verdict"] == "pass"


def test_after_its_return_it_must_write_like_before() -> None:
    run = HonestRun(Plan(coordinator_returns_after=(3,))).drop(Durable, what="open 4")
    assert_caught(run, NAME, 4)
