"""A run that was given up is never a pass, however clean its history is up to there; how it ended decides the code."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from testbed.engines.base import EngineOutcome
from testbed.exit_codes import ExitCode
from testbed.planning import RunRequest, prepare
from testbed.results import compose
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
