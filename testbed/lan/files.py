"""Files of a run folder on their way between a host and the driver, in parts. No path leaves the folder."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

from services.shell.attach_frames import FilePart
from services.shell.rooted_disk import RootedDisk

PART_BYTES = 2**20


class FileParts:
    """Puts parts together on a disk. Raises PermissionError for a path outside of it, ValueError for a gap."""

    def __init__(self, disk: RootedDisk) -> None:
        self._disk = disk

    def take(self, part: FilePart) -> None:
        """Write one part; the first one (offset 0) replaces the file."""
        target = Path(self._disk.inside(part.path))
        if part.offset == 0:
            target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb" if part.offset == 0 else "r+b") as file:
            if file.seek(0, os.SEEK_END) != part.offset:
                raise ValueError(f"{part.path}: part at {part.offset} where {file.tell()} is next")
            file.write(part.data)

    @staticmethod
    def of(root: Path, path: str) -> Iterator[FilePart]:
        """The parts of one file, at least one."""
        with (root / path).open("rb") as file:
            offset = 0
            while (data := file.read(PART_BYTES)) or offset == 0:
                yield FilePart(path, offset, data)
                offset += len(data)
                if not data:
                    return


def changed_files(root: Path, sent: dict[str, tuple[int, int]]) -> list[tuple[str, tuple[int, int]]]:
    """(path, mark) of every file below `root` that is not as it was `sent`, ascending."""
    found = []
    for path in sorted(root.rglob("*")):
        if path.is_file() and not path.is_symlink():
            state, name = path.stat(), path.relative_to(root).as_posix()
            mark = (state.st_size, state.st_mtime_ns)
            if sent.get(name) != mark:
                found.append((name, mark))
    return found
