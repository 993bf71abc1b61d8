"""The machine's disk as a role sees it: everything below one folder, nothing outside it."""

from __future__ import annotations

import errno
import os
from dataclasses import replace
from pathlib import Path

from services import decision_log
from services.events import COORDINATOR, VERIFIER
from training.disk import DiskOp, Rename
from training.real_disk import RealDisk

FILES_OF_ROLES = {COORDINATOR: (decision_log.PATH,), VERIFIER: ("history.jsonl", "history.arrays")}


class RootedDisk:
    """A `training.disk.Disk` whose paths are relative to `root`. A path that leaves it raises PermissionError."""

    def __init__(self, root: str) -> None:
        self._root = os.path.abspath(root)
        self._disk = RealDisk()

    def apply(self, op: DiskOp) -> None:
        if isinstance(op, Rename):
            self._disk.apply(Rename(self.inside(op.source), self.inside(op.target)))
        else:
            self._disk.apply(replace(op, path=self.inside(op.path)))

    def read(self, path: str) -> bytes:
        return self._disk.read(self.inside(path))

    def list(self, path: str) -> tuple[str, ...]:
        return self._disk.list(self.inside(path))

    def exists(self, path: str) -> bool:
        return self._disk.exists(self.inside(path))

    def inside(self, path: str) -> str:
        """Where `path` lies on this machine. Raises PermissionError for one that leaves the root."""
        if os.path.isabs(path) or ".." in path.split("/") or "\0" in path:
            raise PermissionError(errno.EACCES, "outside of the role's folder", path)
        return os.path.join(self._root, path)


def own_files(root: str, role: str) -> dict[str, bytes]:
    """What the role's earlier launches left behind of what it comes back from (name -> content)."""
    paths = [Path(root, name) for name in FILES_OF_ROLES.get(role, ())]
    return {path.name: path.read_bytes() for path in paths if path.is_file()}
