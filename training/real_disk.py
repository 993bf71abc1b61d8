"""The disk of the machine, and the only module of `training` that touches files.

Duty of the caller: an OSError (disk full, input/output error) ends the plan and is never retried, since after a
failed fsync the kernel may report the next one as fine although data were lost.
"""

import os

from training.disk import AppendFile, DiskOp, MakeDir, Remove, Rename, SyncDir, SyncFile, WriteFile


class RealDisk:
    """A `training.disk.Disk` over the operating system; paths are absolute or relative to the process. No state."""

    def apply(self, op: DiskOp) -> None:
        """Do one operation; every OSError propagates."""
        match op:
            case MakeDir(path):
                _make_folder(path)
            case WriteFile(path, content):
                _write(path, content, os.O_TRUNC)
            case AppendFile(path, content):
                _write(path, content, os.O_APPEND)
            case SyncFile(path):
                _sync(path, os.O_RDONLY)
            case Rename(source, target):
                os.rename(source, target)
            case SyncDir(path):
                _sync(path or ".", os.O_RDONLY | os.O_DIRECTORY)
            case Remove(path):
                _remove(path)

    def read(self, path: str) -> bytes:
        """The content of a file."""
        with open(path, "rb") as file:
            return file.read()

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, ascending."""
        return tuple(sorted(os.listdir(path or ".")))

    def exists(self, path: str) -> bool:
        """Whether `path` names a file or folder."""
        return os.path.lexists(path or ".")


def _make_folder(path: str) -> None:
    try:
        os.mkdir(path or ".")
    except FileExistsError:
        if not os.path.isdir(path or "."):
            raise


def _write(path: str, content: bytes, flag: int) -> None:
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | flag | os.O_CLOEXEC, 0o666)
    try:
        left = memoryview(content)
        while left:
            left = left[os.write(handle, left) :]
    finally:
        os.close(handle)


def _sync(path: str, flags: int) -> None:
    handle = os.open(path, flags | os.O_CLOEXEC)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def _remove(path: str) -> None:
    if os.path.isdir(path) and not os.path.islink(path):
        os.rmdir(path)
    else:
        os.unlink(path)
