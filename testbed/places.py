"""Whether a path that a person gave can be used: asked before anything starts, answered in words.

Every answer says what is wrong where; the caller adds what it wanted the path for, and which option names another.
"""

from __future__ import annotations

import os
from pathlib import Path
from stat import S_ISDIR, S_ISREG

from training.errors import ConfigurationError

_EFFECTIVE = os.access in os.supports_effective_ids


def said(error: Exception) -> str:
    """Why it failed, without number and path: whoever says so names the path."""
    return getattr(error, "strerror", None) or str(error)


def require_folder(path: Path, what: str, instead: str) -> None:
    """Raise ConfigurationError unless `path` is a folder that takes new files, or can be made one."""
    if why := why_no_folder(path):
        raise ConfigurationError(f"{what} {path} cannot be made: {why}; give {instead} another place")


def why_no_folder(path: Path) -> str:
    """Why `path` is no folder that takes new files, and cannot be made one; "" when it is or can."""
    for one in (path, *path.parents):
        try:
            one.lstat()  # a broken link is in the way, too
        except (FileNotFoundError, NotADirectoryError):
            continue  # to be made, or what is in the way lies further up
        except OSError as error:
            return said(error)
        return _why_not_there(one)
    return ""


def _why_not_there(folder: Path) -> str:
    try:
        is_folder = S_ISDIR(folder.stat().st_mode)
    except OSError:  # a link that leads nowhere, or in a circle
        is_folder = False
    if not is_folder:
        return f"{folder} is no folder"
    able = os.access(folder, os.W_OK | os.X_OK, effective_ids=_EFFECTIVE)
    return "" if able else f"nothing can be written in {folder.resolve()}"


def read_file(path: Path, what: str) -> bytes:
    """The content of a file that a person named. Raises ConfigurationError."""
    try:
        require_end(path)
        return path.read_bytes()
    except (OSError, ValueError) as error:  # a name with a zero byte in it is no OSError
        raise ConfigurationError(f"cannot read {what} {path}: {said(error)}; check the path") from error


def require_end(path: Path) -> None:
    """Raise ConfigurationError where reading might have no end: a pipe, a device. Raises OSError and ValueError."""
    mode = path.stat().st_mode
    if not (S_ISREG(mode) or S_ISDIR(mode)):  # a folder has a complaint of its own
        raise ConfigurationError(f"{path} is a pipe or a device; give a file")
