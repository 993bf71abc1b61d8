"""A run that was given up is never a pass, however clean its history is up to there; how it ended decides the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import testbed
from services.messages import Finish
from services.roles.worker import Worker
from testbed.engines.base import EngineOutcome, RoleExit, Silent
from testbed.engines.evidence_ledger import EvidenceLedger
from testbed.engines.sim import _Session
from testbed.exit_codes import ExitCode
from testbed.planning import RunRequest, prepare
from testbed.results import compose, judged_again
from testbed.run_folder import RunFolder


@pytest.mark.parametrize(
    ("verdict", "aborted", "stop", "expected", "code"),
    [
        ({"verdict": "pass"}, "", "finished", "pass", ExitCode.PASS),
        ({"verdict": "pass"}, "no step moved", "", "unknown", ExitCode.UNKNOWN),
        ({"verdict": "violated"}, "no step moved", "", "violated", ExitCode.VIOLATED),
        ({}, "the verifier never concluded", "", "unknown", ExitCode.UNKNOWN),
        ({"verdict": "unknown"}, "", "disk full", "unknown", ExitCode.STOPPED),
        ({"verdict": "violated"}, "", "disk full", "violated", ExitCode.VIOLATED),
    ],
)
def test_verdict_and_code(
    verdict: dict[str, Any], aborted: str, stop: str, expected: str, code: ExitCode, tmp_path: Path
) -> None:
    prepared = prepare(RunRequest(scenario="clean", engine="sim", out=tmp_path / "run"))
    folder = RunFolder.create(prepared.folder_path)
    result = compose(prepared.plan, "sim", folder, EngineOutcome(verdict, (), stop, "", aborted))
    assert (result.verdict, result.exit_code) == (expected, code)
    assert result.passed == (code is ExitCode.PASS)


def test_a_role_that_crashed_unasked_makes_it_unknown_now_and_when_it_is_judged_again(tmp_path: Path) -> None:
    prepared = prepare(RunRequest(scenario="clean", engine="sim", out=tmp_path / "run"))
    folder = RunFolder.create(prepared.folder_path)
    folder.write_manifest(dict.fromkeys(("run_id", "scenario", "engine", "strategy", "seed", "plants"), ""))
    told = {"verdict": "pass", "condition": "finished"}
    exits = (RoleExit("worker-1", 1, -9, True, "a fault"), RoleExit("worker-2", 1, 70, False, "a traceback"))
    result = compose(prepared.plan, "sim", folder, EngineOutcome(told, exits, "finished", "", ""))
    folder.write_verdict(result.document)
    for one in (result, judged_again(folder, told)):
        assert (one.verdict, one.exit_code) == ("unknown", ExitCode.UNKNOWN)
        assert one.document["reasons"][-1] == "worker-2 ended with code 70, and no fault asked for it; see logs/"


def test_a_run_that_was_given_up_is_no_pass_either_when_it_is_judged_again(tmp_path: Path) -> None:
    prepared = prepare(RunRequest(scenario="clean", engine="sim", out=tmp_path / "run"))
    folder = RunFolder.create(prepared.folder_path)
    folder.write_manifest(dict.fromkeys(("run_id", "scenario", "engine", "strategy", "seed", "plants"), ""))
    told = {"verdict": "pass", "condition": "finished"}
    folder.write_verdict(
        compose(prepared.plan, "sim", folder, EngineOutcome(told, (), "finished", "", "lost")).document
    )
    again = judged_again(folder, told)
    assert (again.verdict, again.exit_code, again.document["saved_verdict"]) == ("unknown", ExitCode.UNKNOWN, "unknown")


@pytest.mark.parametrize("plant", ["checkpoint-in-float32", "velocity-of-another-step"])
def test_a_checkpoint_that_holds_another_state_than_was_proved_is_no_pass(plant: str, tmp_path: Path) -> None:
    """Nobody goes back to it in this run, and its writer tells the digest of what it holds; only the file shows it."""
    result = testbed.run("clean", plant=(plant,), out=tmp_path / "run")
    assert (result.verdict, result.exit_code) == ("unknown", ExitCode.UNKNOWN)
    assert "on the disk are not those of step 16" in result.document["reasons"][-1]
    assert testbed.verify(str(tmp_path / "run")).verdict == "unknown"


def test_who_ends_without_an_account_is_named() -> None:
    ledger = EvidenceLedger()
    for role in ("coordinator", "worker-1", "worker-2", "worker-3"):
        ledger.launched(role, 1)
        ledger.counted(role, 1, 7)
    ledger.ended("coordinator", 1, 9)
    ledger.excuse("worker-1", 1, "killed by 1-kill")
    assert (
        ledger.complaint == "worker-2 (launch 1), worker-3 (launch 1) ended without saying how many records were made"
    )
    for role in ("worker-2", "worker-3"):
        ledger.ended(role, 1, 8)
    assert ledger.complaint == ""


def test_who_does_not_leave_in_the_simulator_has_no_excuse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """As on processes: only a death that a fault asked for excuses that records are missing."""
    asked = Worker._asked
    monkeypatch.setattr(
        Worker, "_asked", lambda self, message: None if isinstance(message, Finish) else asked(self, message)
    )
    prepared = prepare(RunRequest(scenario="kill-worker", engine="sim", out=tmp_path / "run"))
    session = _Session(prepared.plan, Silent())
    assert session.run().verdict["verdict"] == "pass"
    excused = [role for role, launches in session.expected.items() if "excused: killed" in launches.values()]
    assert excused == ["worker-2"]
