"""Hosts for tests: what `gradstorm plan` prints is carried out to the letter, each block on the host that it names.

A host is this machine (several ports), or a network namespace with an address of its own. The switch between the
namespaces lives in one more of them, so that nothing of this machine's own network is touched.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[3]
_SWITCH = "switch"


class Namespaces:
    """`count` hosts at 10.77.0.1, .2, …; `prefix` names them, so that two test runs do not meet."""

    def __init__(self, prefix: str, count: int) -> None:
        self._names = {f"10.77.0.{number}": f"{prefix}-{number}" for number in range(1, count + 1)}
        self._switch = f"{prefix}-{_SWITCH}"

    @property
    def addresses(self) -> list[str]:
        return list(self._names)

    def on(self, address: str) -> list[str]:
        """What a command is put behind, to run there."""
        return ["ip", "netns", "exec", self._names[address]]

    def __enter__(self) -> Namespaces:
        _ip(f"netns add {self._switch}")
        _ip(f"-n {self._switch} link add bridge type bridge")
        _ip(f"-n {self._switch} link set bridge up")
        for number, (address, name) in enumerate(self._names.items(), start=1):
            _ip(f"netns add {name}")
            _ip(f"-n {self._switch} link add port{number} type veth peer name eth0 netns {name}")
            _ip(f"-n {self._switch} link set port{number} master bridge up")
            _ip(f"-n {name} addr add {address}/24 dev eth0")
            _ip(f"-n {name} link set eth0 up")
            _ip(f"-n {name} link set lo up")
        return self

    def __exit__(self, *_: object) -> None:
        for name in (*self._names.values(), self._switch):
            subprocess.run(["ip", "netns", "del", name], check=False, capture_output=True)


class ThisMachine:
    """Every host is 127.0.0.1."""

    def on(self, _address: str) -> list[str]:
        return []


def free_ports(count: int) -> str:
    """The first of so many ports in a row that nobody listens on; below those that the system gives away itself."""
    ranges = [range(first, first + count) for first in range(10_000, 30_000 - count, count)]
    at = os.getpid() % len(ranges)  # two that look at the same time begin elsewhere
    for ports in (*ranges[at:], *ranges[:at]):
        with contextlib.ExitStack() as held, contextlib.suppress(OSError):
            for port in ports:
                held.enter_context(socket.create_server(("127.0.0.1", port)))
            return str(ports.start)
    raise AssertionError("no free ports")


def _ip(arguments: str) -> None:
    subprocess.run(["ip", *arguments.split(" ")], check=True, capture_output=True)


def gradstorm(*arguments: str, home: Path) -> str:
    """Standard output of one command that must succeed."""
    done = subprocess.run(
        [sys.executable, "-m", "testbed.cli", *arguments],
        capture_output=True, text=True, check=False, env=environment(home), cwd=ROOT, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


def environment(home: Path) -> dict[str, str]:
    """As a user has it who installed Gradstorm: the command is on PATH."""
    command = home / "bin" / "gradstorm"
    if not command.exists():
        command.parent.mkdir(parents=True)
        command.write_text(f'#!/bin/sh\nexec "{sys.executable}" -m testbed.cli "$@"\n')
        command.chmod(0o755)
    path = f"{command.parent}:{os.environ['PATH']}"
    return {**os.environ, "PATH": path, "PYTHONPATH": str(ROOT), "GRADSTORM_HOME": str(home / "runs")}


def blocks_of(printed: str) -> list[tuple[str, str]]:
    """(host, script) of each block that `gradstorm plan` printed."""
    found = []
    for block in printed.split("\n\n"):
        head, _, script = block.partition("\n")
        if head.startswith("# on "):
            found.append((head.split(" ")[2], script))
    return found


@contextlib.contextmanager
def waiting(blocks: Sequence[tuple[str, str]], hosts: Namespaces | ThisMachine, home: Path) -> Iterator[list[Any]]:
    """All blocks but the last, started in order; what is left of them at the end is ended."""
    started: list[subprocess.Popen[bytes]] = []
    try:
        for address, script in blocks:
            log = (home / f"host-{len(started)}.log").open("wb")
            line = [*hosts.on(address), "sh", "-c", f"{script}\nwait"]
            started.append(
                subprocess.Popen(
                    line, stdout=log, stderr=log, env=environment(home), cwd=home, start_new_session=True
                )
            )  # fmt: skip
        yield started
    finally:
        for process in started:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGTERM)
            process.wait(20)


def follow(printed: str, hosts: Namespaces | ThisMachine, home: Path, patience_s: float = 100.0) -> dict[str, Any]:
    """Carry the plan out; the verdict document of the run, and that every host left by itself."""
    *others, (address, script) = blocks_of(printed)
    with waiting(others, hosts, home) as started:
        done = subprocess.run(
            [*hosts.on(address), "sh", "-c", f"{script.rstrip()} --json"],
            capture_output=True, text=True, check=False, env=environment(home), cwd=home, timeout=patience_s,
        )  # fmt: skip
        logs = "\n".join(path.read_text()[-1500:] for path in sorted(home.glob("host-*.log")))
        assert done.stdout, f"{done.stderr[-3000:]}\n{logs}"
        left = [process.wait(20) for process in started]
    document: dict[str, Any] = json.loads(done.stdout)
    told = f"{document['reasons']} {document['aborted']}\n{done.stderr[-3000:]}\n{logs}"
    assert document["verdict"] == "pass", told
    assert left == [0] * len(started), told
    return document
