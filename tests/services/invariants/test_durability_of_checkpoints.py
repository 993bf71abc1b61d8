"""How a checkpoint gets its name, and whether a rollback finds what was published."""

from __future__ import annotations

import pytest

from services.records import Durable, Published, RolledBack
from tests.services.honest_run import PUBLISHED, SAVED, HonestRun, Plan
from tests.services.invariants.caught import assert_caught

NAME = "durability"


def _name_of(run: HonestRun, step: int) -> str:
    told = run.told[run.places(Published, step=step)[0]].fact
    assert isinstance(told, Published)
    return told.name


def test_a_checkpoint_that_was_written_in_place() -> None:
    run = HonestRun()
    operations = {**SAVED, "rename": 0}
    run.replace(Durable, {"what": f"checkpoint 4 {_name_of(run, 4)}"}, operations=operations)
    assert_caught(run, NAME, 4, "worker-1", "written in its place")


def test_a_pointer_that_was_written_over() -> None:
    run = HonestRun()
    run.replace(Durable, {"what": f"publish 4 {_name_of(run, 4)}"}, operations={**PUBLISHED, "rename": 0})
    assert_caught(run, NAME, 4, "coordinator", "nothing was renamed")


def test_a_rename_before_the_sync() -> None:
    run = HonestRun()
    run.replace(Durable, {"what": f"checkpoint 4 {_name_of(run, 4)}"}, operations={**SAVED, "early_rename": 1})
    assert_caught(run, NAME, 4, "worker-1", "before they were synced")


@pytest.mark.parametrize("damaged", [True, False])
def test_what_is_damaged_may_be_passed_over_if_it_is_named(damaged: bool) -> None:
    run = HonestRun(Plan(rolls_back_after=3))
    name = _name_of(run, 2)
    told = ((name, "a bit has flipped"),) if damaged else ()
    run.replace(RolledBack, {}, name="ckpt-00000000-g0-i0", damaged=told)
    part = next(entry for entry in run.judge()["invariants"] if entry["name"] == NAME)
    wrong = "" if part["first_violation"] is None else part["first_violation"]["what"]
    assert ("is not named as damaged" in wrong) is not damaged
