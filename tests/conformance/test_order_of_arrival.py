"""Records of different roles reach the verifier in any order between them; the verdict may not depend on it."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

import testbed
from services.history import HistoryLine, encode_line, read_history


def rewrite(folder: Path, lines: list[HistoryLine]) -> None:
    """Replace the history by these lines in this order, numbered anew; the clock stays that of the place."""
    texts, arrays = [], b""
    for number, line in enumerate(lines, start=1):
        text, content = encode_line(replace(line, seq=number), len(arrays))
        texts.append(text)
        arrays += content
    (folder / "history.jsonl").write_bytes(b"".join(texts))
    (folder / "history.arrays").write_bytes(arrays)


def lines_of(folder: Path) -> list[HistoryLine]:
    """The saved history, undamaged."""
    history = read_history((folder / "history.jsonl").read_bytes(), (folder / "history.arrays").read_bytes())
    assert not history.damage
    return list(history.lines)


@pytest.mark.parametrize("strategy", ["ring", "ps"])
def test_workers_that_tell_of_a_step_made_again_before_the_coordinator_tells_of_its_rollback(
    strategy: str, tmp_path: Path
) -> None:
    """The step comes out with the same value as before it was void: the value serves both times."""
    result = testbed.run("resume", strategy=strategy, out=tmp_path / "run")
    lines = lines_of(result.folder)
    (at,) = [index for index, line in enumerate(lines) if line.kind == "RolledBack"]
    told = [line for line in lines[at:] if line.source.startswith("worker-")][:40]
    assert any(line.kind == "Reduced" for line in told)
    taken = {line.seq for line in told}
    rest = [line for line in lines[at:] if line.seq not in taken]
    clock_ms = lines[at].at_ms
    early = [replace(line, at_ms=clock_ms) for line in told]
    rewrite(result.folder, [*lines[:at], *early, *rest])
    again = testbed.verify(str(result.folder))
    assert again.passed, again.document["reasons"]
    assert again.document["steps_checked"] == again.document["steps_committed"] == 16
