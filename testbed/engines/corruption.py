"""Damage to checkpoints on a disk, for the fault `corrupt_checkpoint`. The same on every engine."""

from __future__ import annotations

import posixpath

from services.jobs import CHECKPOINT_FOLDER
from training.checkpoint import POINTER, parse_name
from training.disk import Disk, Remove, WriteFile


def corrupt_checkpoints(disk: Disk, how: str, count: int) -> tuple[str, ...]:
    """Damage the `count` newest checkpoints (or the pointer); the names of what was damaged. Raises OSError."""
    if how == "remove_pointer":
        disk.apply(Remove(posixpath.join(CHECKPOINT_FOLDER, POINTER)))
        return (POINTER,)
    keys = {key: name for name in disk.list(CHECKPOINT_FOLDER) if (key := parse_name(name)) is not None}
    newest = [keys[key] for key in sorted(keys, reverse=True)][:count]
    for name in newest:
        folder = posixpath.join(CHECKPOINT_FOLDER, name)
        for file in disk.list(folder):
            path = posixpath.join(folder, file)
            disk.apply(WriteFile(path, _damaged(disk.read(path), how)))
    return tuple(newest)


def _damaged(content: bytes, how: str) -> bytes:
    if how == "truncate":
        return content[: len(content) // 2]
    if how == "zero":
        return b""
    middle = len(content) // 2
    return content[:middle] + bytes([content[middle] ^ 1]) + content[middle + 1 :]
