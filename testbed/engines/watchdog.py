"""The process that outlives a killed driver for a moment and takes the driver's processes with it.

Run as a script by path (`python -I -S watchdog.py`), started before the first role; standard library only. It reads
one line per change from its standard input and does nothing else:

    add PID MARK        PID was started; MARK is `start_mark(PID)`
    remove PID          PID is reaped

When the input ends (the driver closed it, or died in any way, SIGKILL included) it sends SIGKILL to exactly the
processes that are registered and still the ones that were registered: a PID that the system gave to somebody else
has another mark and is left alone. SIGKILL reaches a stopped process as well.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys


def start_mark(pid: int) -> str:
    """What tells this process from a later one with the same PID: its start time. Empty when there is none."""
    try:
        with open(f"/proc/{pid}/stat", "rb") as file:
            fields = file.read().rpartition(b")")[2].split()
    except FileNotFoundError:
        return _mark_by_ps(pid) if not os.path.isdir("/proc/self") else ""
    except ProcessLookupError:
        return ""
    state, start_ticks = fields[0].decode(), fields[19].decode()
    return "" if state in "ZX" else start_ticks


def _mark_by_ps(pid: int) -> str:
    """The same on a system without /proc (macOS); `ps` knows the start to the second."""
    answer = subprocess.run(["ps", "-o", "lstart=", "-p", str(pid)], capture_output=True, text=True, check=False)
    return answer.stdout.strip().replace(" ", "_")


def follow(lines: list[str], registered: dict[int, str]) -> None:
    """Apply the lines to the register. A line that is none of ours is ignored."""
    for line in lines:
        match line.split():
            case ["add", pid, mark] if pid.isdigit():
                registered[int(pid)] = mark
            case ["remove", pid] if pid.isdigit():
                registered.pop(int(pid), None)


def kill_registered(registered: dict[int, str]) -> list[int]:
    """SIGKILL whoever is still the process that was registered; return those PIDs, ascending."""
    killed = []
    for pid, mark in sorted(registered.items()):
        if start_mark(pid) == mark:
            try:
                os.kill(pid, signal.SIGKILL)
            except ProcessLookupError:
                continue
            killed.append(pid)
    return killed


def main() -> int:
    """Follow the register until the input ends, then kill what it still holds."""
    for name in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(name, signal.SIG_IGN)
    registered: dict[int, str] = {}
    for line in sys.stdin:
        follow([line], registered)
    kill_registered(registered)
    return 0


if __name__ == "__main__":
    sys.exit(main())
