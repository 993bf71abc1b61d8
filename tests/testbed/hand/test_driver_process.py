"""The driver of a standing testbed: an error of our own is found in the run folder's logs, since nobody hears it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from testbed.engines.standing import StandingEngine
from testbed.hand.driver_process import CRASH, main


def test_an_error_of_our_own_is_written_down(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def broken(*_: Any) -> None:
        raise AssertionError("worker-2 runs already")

    monkeypatch.setattr(StandingEngine, "run", broken)
    request = {"workers": 2, "strategy": "ring", "out": str(tmp_path / "run"), "pace_ms": 500.0}
    with pytest.raises(AssertionError, match="worker-2 runs already"):
        main(request)
    assert "AssertionError: worker-2 runs already" in (tmp_path / "run" / "logs" / CRASH).read_text()
    last = json.loads(capsys.readouterr().out.splitlines()[-1])
    assert last == {"error": "an error of Gradstorm's own: AssertionError('worker-2 runs already')", "code": 3}
