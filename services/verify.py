"""Judge a saved run anew, from its history alone.

    document = verify(disk)          # a `training.disk.Disk` over the run's folder

The same lines through the same judge: on an undamaged history the document equals the live verdict.
"""

from __future__ import annotations

from typing import Any

from services.dataset_reading import DATASET_PATH
from services.history import ARRAYS_PATH, LINES_PATH, read_history
from services.judges import configuration_in, make_judge
from training.disk import Disk


def verify(disk: Disk, folder: str = "") -> dict[str, Any]:
    """The verdict document for the run in `folder` of `disk`. What is missing makes it "unknown"; it never raises."""
    lines, arrays, dataset = (_read(disk, folder, name) for name in (LINES_PATH, ARRAYS_PATH, DATASET_PATH))
    history = read_history(lines, arrays)
    judge = make_judge(dataset, configuration_in(history.lines))
    for damage in history.damage:
        judge.damaged(damage)
    for line in history.lines:
        judge.feed(line)
    return judge.finish()


def _read(disk: Disk, folder: str, name: str) -> bytes:
    path = f"{folder}/{name}" if folder else name
    try:
        return disk.read(path)
    except OSError:
        return b""
