"""README shows what a run prints: the example of a planted bug is made again and compared."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from testbed.cli import run_command

README = Path(__file__).resolve().parents[1] / "README.md"


def test_the_run_with_a_planted_bug_ends_as_readme_shows_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GRADSTORM_HOME", str(tmp_path / "runs"))
    assert run_command(["run", "clean", "--plant", "mean-of-means"]) == 1
    printed = capsys.readouterr().out
    shown = README.read_text(encoding="utf-8")
    for name, pattern in {
        "run": r"runs/(clean-ring-sim-s1-\w+)\n",
        "line": r"history line (\d+)\n",
        "first": r"VIOLATED: contribution accounting: (step .*)\n",
        "summary": r"\nVIOLATED: (contribution accounting, gradient exactness); open",
    }.items():
        assert re.findall(pattern, shown) == re.findall(pattern, printed), name
