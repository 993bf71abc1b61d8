"""What the exit code of `gradstorm` means. These numbers are a promise to scripts."""

from __future__ import annotations

from enum import IntEnum


class ExitCode(IntEnum):
    """See README, "Exit codes"."""

    PASS = 0
    VIOLATED = 1
    USAGE = 2  # arguments, configuration or data cannot be; nothing was started
    ENVIRONMENT = 3  # this machine would not: no disk, no port, no process
    UNKNOWN = 4  # the run ended, and the evidence does not suffice for a verdict
    STOPPED = 5  # by a named condition: disk full, nobody left, …
    CRASHED = 70  # an error of Gradstorm's own; its traceback is on stderr
    INTERRUPTED = 130


def exit_code_of(verdict: str, stop_condition: str) -> ExitCode:
    """The code of a run that ended: a violation outweighs a stop, a stop outweighs what is unknown because of it."""
    if verdict == "violated":
        return ExitCode.VIOLATED
    if stop_condition not in ("", "finished"):
        return ExitCode.STOPPED
    return ExitCode.PASS if verdict == "pass" else ExitCode.UNKNOWN
