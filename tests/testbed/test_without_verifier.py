"""A run without a verifier trains the same, and never claims that anything was checked."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from testbed.api import carry_out, run
from testbed.exit_codes import ExitCode
from testbed.planning import RunRequest, prepare


@pytest.mark.parametrize("engine", ["sim", pytest.param("local", marks=pytest.mark.local)])
def test_its_verdict_is_unknown_and_its_parameters_are_the_same(engine: str, tmp_path: Path) -> None:
    prepared = prepare(RunRequest(scenario="clean", engine=engine, steps=6, out=tmp_path / "unchecked"))
    result = carry_out(replace(prepared, plan=replace(prepared.plan, verifier=False)))
    assert (result.verdict, result.exit_code) == ("unknown", ExitCode.UNKNOWN)
    assert result.document["aborted"] == "the run had no verifier: nothing was checked"
    assert result.document["steps_checked"] == 0
    assert not (result.folder / "history.jsonl").exists()
    checked = run("clean", engine="sim", steps=6, out=tmp_path / "checked")
    assert result.document["params_sha256"] == checked.document["params_sha256"]
