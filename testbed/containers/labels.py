"""Whose a container or network is: labels that say owner, run, expiry and driver, and when it counts as left over.

Everything that we start carries them; everything that we remove was found by them. Nothing is ever pruned, nothing is
removed by its name alone.
"""

from __future__ import annotations

import getpass
import os
import socket
from collections.abc import Callable, Mapping
from dataclasses import dataclass

from testbed.engines.watchdog import start_mark

OWNER = "gradstorm.owner"
RUN = "gradstorm.run"
EXPIRES = "gradstorm.expires"
DRIVER = "gradstorm.driver"
ROLE = "gradstorm.role"
LAUNCH = "gradstorm.launch"


@dataclass(frozen=True, slots=True)
class Ownership:
    """`owner` is a person on a machine, `driver` the process that answers for it.

    A testbed that is to stand without a driver (`up`, `--keep`) has none and stays until it expires or is removed.
    """

    owner: str
    run_id: str
    expires_unix_s: int
    driver: str = ""

    def labels(self, role: str = "", launch: int = 0) -> dict[str, str]:
        """What to put on a container of `role`, or on anything else of the run."""
        found = {OWNER: self.owner, RUN: self.run_id, EXPIRES: str(self.expires_unix_s)}
        if self.driver:
            found[DRIVER] = self.driver
        if role:
            found |= {ROLE: role, LAUNCH: str(launch)}
        return found


def read_ownership(labels: Mapping[str, str]) -> Ownership | None:
    """Whose the bearer of these labels is; None when it is nothing of Gradstorm's, or cannot be told."""
    try:
        return Ownership(labels[OWNER], labels[RUN], int(labels[EXPIRES]), labels.get(DRIVER, ""))
    except (KeyError, ValueError):
        return None


def this_owner() -> str:
    """User and machine: two people who share a daemon are two owners."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a number without a name, as in containers
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"


def this_driver() -> str:
    """This process, told apart from a later one with the same PID."""
    return f"{socket.gethostname()}/{os.getpid()}/{start_mark(os.getpid())}"


def is_alive(driver: str) -> bool | None:
    """Whether that process still runs; None when it is another machine's and cannot be asked."""
    host, _, rest = driver.partition("/")
    pid, _, mark = rest.partition("/")
    if host != socket.gethostname() or not pid.isdigit():
        return None
    return start_mark(int(pid)) == mark != ""


def why_left_over(whose: Ownership, now_unix_s: float, alive: Callable[[str], bool | None] = is_alive) -> str:
    """Why nobody answers for it any more; empty while somebody does. A living driver keeps its things past expiry."""
    running = alive(whose.driver) if whose.driver else None
    if running:
        return ""
    if running is False:
        return f"its driver {whose.driver} is gone"
    if now_unix_s >= whose.expires_unix_s:
        return f"expired {now_unix_s - whose.expires_unix_s:.0f} s ago"
    return ""
