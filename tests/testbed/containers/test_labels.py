"""When a container counts as left over: never while somebody answers for it, always once nobody does."""

from __future__ import annotations

import dataclasses
import os
import socket
import subprocess
import sys

import pytest

from testbed.containers.labels import Ownership, is_alive, read_ownership, this_driver, why_left_over
from testbed.containers.sweep import left_over_of, of_owner, of_run

RUN = Ownership("ann@here", "r1", expires_unix_s=1000, driver="here/7/99")
STANDING = dataclasses.replace(RUN, driver="")


def test_labels_are_read_back() -> None:
    assert read_ownership(RUN.labels("worker-1", 2)) == RUN
    assert read_ownership(STANDING.labels()) == STANDING
    assert RUN.labels("worker-1", 2)["gradstorm.launch"] == "2"


@pytest.mark.parametrize("labels", [{}, {"gradstorm.owner": "ann"}, {**RUN.labels(), "gradstorm.expires": "soon"}])
def test_what_cannot_be_told_is_nobodys(labels: dict[str, str]) -> None:
    assert read_ownership(labels) is None


@pytest.mark.parametrize(
    ("whose", "alive", "now_s", "reason"),
    [
        (RUN, True, 999, ""),
        (RUN, True, 5000, ""),  # a long run is no leftover
        (RUN, False, 1, "its driver here/7/99 is gone"),
        (RUN, None, 999, ""),  # on another machine: only the expiry tells
        (RUN, None, 1000, "expired 0 s ago"),
        (STANDING, None, 999, ""),
        (STANDING, None, 1060, "expired 60 s ago"),
    ],
)
def test_left_over(whose: Ownership, alive: bool | None, now_s: float, reason: str) -> None:
    assert why_left_over(whose, now_s, lambda driver: alive) == reason


def test_this_process_lives_and_one_that_ended_does_not() -> None:
    assert is_alive(this_driver()) is True
    child = subprocess.run([sys.executable, "-c", ""], check=False)
    assert child.returncode == 0
    host, pid = socket.gethostname(), os.getpid()
    assert is_alive(f"{host}/{pid}/12345") is False  # the PID was given to another process
    assert is_alive(f"{host}/{pid}/") is False
    assert is_alive(f"another-{host}/{pid}/1") is None
    assert is_alive("nonsense") is None


def test_choices_are_by_owner_and_run_and_nothing_else() -> None:
    other = dataclasses.replace(RUN, owner="bob@here", run_id="r2")
    dead = lambda driver: False  # noqa: E731
    assert (of_run("r1")(RUN), of_run("r1")(other)) == ("of run r1", "")
    assert (of_owner("ann@here")(RUN), of_owner("ann@here")(other)) == ("of ann@here", "")
    assert left_over_of("ann@here", 0, dead)(RUN) != ""
    assert left_over_of("ann@here", 0, dead)(other) == ""
