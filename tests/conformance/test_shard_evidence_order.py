"""Records of different roles arrive in any order: a shard may tell of its start before the coordinator does."""

from __future__ import annotations

from pathlib import Path

import testbed
from services.history import ARRAYS_PATH, LINES_PATH, HistoryLine, encode_line, read_history
from services.records import RunStarted, ShardLoaded


def moved_first(lines: tuple[HistoryLine, ...]) -> list[HistoryLine]:
    """The first `ShardLoaded` before everything else, numbered anew."""
    at = next(at for at, line in enumerate(lines) if line.kind == ShardLoaded.__name__)
    assert RunStarted.__name__ in [line.kind for line in lines[:at]]
    return [lines[at], *lines[:at], *lines[at + 1 :]]


def test_a_shard_that_reports_first(tmp_path: Path) -> None:
    result = testbed.run("shards-clean", "sim", out=tmp_path / "run")
    assert result.passed, result.document
    folder = result.folder
    history = read_history((folder / LINES_PATH).read_bytes(), (folder / ARRAYS_PATH).read_bytes())
    lines, arrays = b"", b""
    for seq, line in enumerate(moved_first(history.lines), start=1):
        moved = HistoryLine(
            seq, line.at_ms, line.source, line.launch, line.number, line.kind, line.body_json, line.arrays
        )
        text, chunk = encode_line(moved, len(arrays))
        lines, arrays = lines + text, arrays + chunk
    (folder / LINES_PATH).write_bytes(lines)
    (folder / ARRAYS_PATH).write_bytes(arrays)
    again = testbed.verify(str(folder))
    assert again.passed, again.document["reasons"]
