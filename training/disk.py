"""What a checkpoint asks of a disk, as data, and a disk in memory that loses what was not synced.

A plan is a tuple of `DiskOp`; whoever has a disk applies them one by one, in order, and stops at the first error.
Paths are strings with "/" as separator. Every operation is all or nothing, except that `WriteFile` and `AppendFile`
may be torn.

Duty of the caller: an OSError from `apply` ends the plan; what was done so far is a state that readers understand.
"""

import errno
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from typing import Protocol


@dataclass(frozen=True, slots=True)
class MakeDir:
    """Create the folder `path` if it is not there; its parent must exist."""

    path: str


@dataclass(frozen=True, slots=True)
class WriteFile:
    """Create or truncate the file `path` and write `content`; not durable until `SyncFile`."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class AppendFile:
    """Write `content` behind what the file `path` has, creating it if missing; not durable until `SyncFile`."""

    path: str
    content: bytes = field(repr=False)


@dataclass(frozen=True, slots=True)
class SyncFile:
    """fsync the file `path`: its content survives a power cut (its name only after `SyncDir`)."""

    path: str


@dataclass(frozen=True, slots=True)
class Rename:
    """Move a file or folder from `source` to `target`; a file replaces a file, a folder only an empty one."""

    source: str
    target: str


@dataclass(frozen=True, slots=True)
class SyncDir:
    """fsync the folder `path`: which names it holds survives a power cut."""

    path: str


@dataclass(frozen=True, slots=True)
class Remove:
    """Remove one file, or one empty folder."""

    path: str


DiskOp = MakeDir | WriteFile | AppendFile | SyncFile | Rename | SyncDir | Remove


class Disk(Protocol):
    """Where plans are applied and checkpoints read. All methods raise OSError."""

    def apply(self, op: DiskOp) -> None:
        """Do one operation."""
        ...

    def read(self, path: str) -> bytes:
        """The content of a file."""
        ...

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, ascending."""
        ...

    def exists(self, path: str) -> bool:
        """Whether `path` names a file or folder."""
        ...


def apply_all(disk: Disk, plan: Iterable[DiskOp]) -> None:
    """Apply a plan in order; the first OSError ends it and propagates."""
    for op in plan:
        disk.apply(op)


@dataclass(slots=True, eq=False)
class _File:
    content: bytearray = field(default_factory=bytearray)
    synced: bytearray | None = None  # None: never synced; the same object as `content` while only appended to
    synced_length: int = 0

    def durable(self) -> bytes | None:
        return None if self.synced is None else bytes(self.synced[: self.synced_length])


@dataclass(slots=True, eq=False)
class _Folder:
    names: "dict[str, _File | _Folder]" = field(default_factory=dict)
    durable: "dict[str, _File | _Folder]" = field(default_factory=dict)


class LossyDisk:
    """A disk in memory with a volatile and a durable state; `crash` is a power cut.

    File content is durable after `SyncFile`, and which names a folder holds after `SyncDir`: the POSIX promise and
    nothing beyond it. A killed process loses nothing here; only a power cut does.
    """

    def __init__(self) -> None:
        self._root = _Folder()

    def apply(self, op: DiskOp) -> None:
        """Do one operation; OSError as a real disk would raise it."""
        match op:
            case MakeDir(path):
                self._make_folder(path)
            case WriteFile(path, content):
                self._write(path, content)
            case AppendFile(path, content):
                self._append(path, content)
            case SyncFile(path):
                file = self._file(path)
                file.synced, file.synced_length = file.content, len(file.content)
            case Rename(source, target):
                self._rename(source, target)
            case SyncDir(path):
                folder = self._folder(path)
                folder.durable = dict(folder.names)
            case Remove(path):
                self._remove(path)

    def read(self, path: str) -> bytes:
        """The content of a file, as a process sees it (synced or not)."""
        return bytes(self._file(path).content)

    def list(self, path: str) -> tuple[str, ...]:
        """The names in a folder, ascending, as a process sees them."""
        return tuple(sorted(self._folder(path).names))

    def exists(self, path: str) -> bool:
        """Whether `path` names a file or folder, as a process sees it."""
        try:
            self._node(path)
        except OSError:
            return False
        return True

    def crash(self, choose: Callable[[int], int]) -> None:
        """Cut the power: names that were not synced are as before; file content that was not is chosen.

        `choose(n)` returns a number in 0 .. n-1 and is asked once or twice per such file: 0 the last synced content
        (the file is missing if there is none), 1 empty, 2 cut short, 3 cut short and zero-filled. What was appended
        to synced content is cut alone; what stood before it stays.
        """
        _lose(self._root, choose)

    def _node(self, path: str) -> _File | _Folder:
        node: _File | _Folder = self._root
        for part in _parts(path):
            if isinstance(node, _File):
                raise _os_error(errno.ENOTDIR, path)
            if part not in node.names:
                raise _os_error(errno.ENOENT, path)
            node = node.names[part]
        return node

    def _file(self, path: str) -> _File:
        node = self._node(path)
        if isinstance(node, _Folder):
            raise _os_error(errno.EISDIR, path)
        return node

    def _folder(self, path: str) -> _Folder:
        node = self._node(path)
        if isinstance(node, _File):
            raise _os_error(errno.ENOTDIR, path)
        return node

    def _parent(self, path: str) -> tuple[_Folder, str]:
        parts = _parts(path)
        if not parts:
            raise _os_error(errno.EBUSY, path)
        return self._folder("/".join(parts[:-1])), parts[-1]

    def _make_folder(self, path: str) -> None:
        if not _parts(path):
            return
        parent, name = self._parent(path)
        if isinstance(parent.names.setdefault(name, _Folder()), _File):
            raise _os_error(errno.EEXIST, path)

    def _write(self, path: str, content: bytes) -> None:
        self._opened(path).content = bytearray(content)

    def _append(self, path: str, content: bytes) -> None:
        self._opened(path).content += content

    def _opened(self, path: str) -> _File:
        parent, name = self._parent(path)
        node = parent.names.setdefault(name, _File())
        if isinstance(node, _Folder):
            raise _os_error(errno.EISDIR, path)
        return node

    def _rename(self, source: str, target: str) -> None:
        node = self._node(source)
        from_parent, from_name = self._parent(source)
        to_parent, to_name = self._parent(target)
        present = to_parent.names.get(to_name)
        if present is node:
            return
        if isinstance(node, _Folder) and _parts(target)[: len(_parts(source))] == _parts(source):
            raise _os_error(errno.EINVAL, target)
        if isinstance(present, _Folder) and (present.names or isinstance(node, _File)):
            raise _os_error(errno.ENOTEMPTY if isinstance(node, _Folder) else errno.EISDIR, target)
        if isinstance(present, _File) and isinstance(node, _Folder):
            raise _os_error(errno.ENOTDIR, target)
        del from_parent.names[from_name]
        to_parent.names[to_name] = node

    def _remove(self, path: str) -> None:
        node = self._node(path)
        parent, name = self._parent(path)
        if isinstance(node, _Folder) and node.names:
            raise _os_error(errno.ENOTEMPTY, path)
        del parent.names[name]


def _lose(folder: _Folder, choose: Callable[[int], int]) -> None:
    folder.names = dict(folder.durable)
    for name in sorted(folder.names):
        node = folder.names[name]
        if isinstance(node, _Folder):
            _lose(node, choose)
        elif node.durable() != bytes(node.content):
            left = _survivor(node, choose)
            if left is None:
                del folder.names[name]
            else:
                node.content = node.synced = bytearray(left)
                node.synced_length = len(left)
    folder.durable = dict(folder.names)


def _survivor(file: _File, choose: Callable[[int], int]) -> bytes | None:
    """What a power cut leaves of an unsynced file; a synced beginning that was only appended to is safe."""
    safe = file.synced_length if file.synced is file.content else 0
    head, tail = bytes(file.content[:safe]), bytes(file.content[safe:])
    match choose(4):
        case 0:
            return file.durable()
        case 1:
            return head
        case 2:
            return head + tail[: choose(len(tail) + 1)]
        case _:
            return head + tail[: choose(len(tail) + 1)].ljust(len(tail), b"\0")


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _os_error(number: int, path: str) -> OSError:
    return OSError(number, errno.errorcode[number], path)
