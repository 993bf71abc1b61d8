"""The system calls of `RealDisk`, one by one: each can fail, or be the last that the process lives to make."""

from __future__ import annotations

import os
from collections.abc import Callable
from typing import Any

CHANGING = ("open", "write", "fsync", "rename", "mkdir", "unlink", "rmdir")


class Killed(BaseException):
    """The process ends here."""


class Calls:
    """Stands for the module `os` in `training.real_disk`.

    The call numbered `at`, from 0, raises `error`; if it is a write, half of it has been done by then.
    """

    def __init__(self, at: int, error: Callable[[], BaseException]) -> None:
        self.at = at
        self.error = error
        self.count = 0
        self.names: list[str] = []

    def __getattr__(self, name: str) -> Any:
        call = getattr(os, name)
        return self._counted(name, call) if name in CHANGING else call

    def _counted(self, name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **options: Any) -> Any:
            number, self.count = self.count, self.count + 1
            self.names.append(name)
            if number == self.at:
                if name == "write":
                    call(arguments[0], bytes(arguments[1])[: len(arguments[1]) // 2])
                raise self.error()
            return call(*arguments, **options)

        return counted


def failing(number: int) -> Callable[[], BaseException]:
    """The error of this errno."""
    return lambda: OSError(number, os.strerror(number))
