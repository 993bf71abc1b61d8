"""A Toxiproxy of our own on loopback, from a binary that is found: network faults for roles that are local processes.

    with ToxiproxyProcess.start(binary, folder / "toxiproxy.log") as server:
        Toxiproxy(server.address)

Toxiproxy cannot be asked for port 0 and goes on without its API when the port is taken, so a free port is looked for
and then it is checked that it is *our* process that listens there; another port is tried when it is not. A watchdog
process ends it when the driver dies in any way.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType

import psutil

from testbed.containers.toxiproxy import Toxiproxy
from testbed.containers.toxiproxy_errors import ToxiproxyUnreachable
from testbed.engines import watchdog
from testbed.engines.process import log_tail
from training.errors import ConfigurationError

BINARY_VARIABLE = "GRADSTORM_TOXIPROXY"
BINARY_NAME = "toxiproxy-server"
HOW_TO_GET_ONE = (
    f"no Toxiproxy was found: put {BINARY_NAME} on PATH or its file into {BINARY_VARIABLE}; with Go,"
    " `CGO_ENABLED=0 go install github.com/Shopify/toxiproxy/v2/cmd/server@v2.12.0` makes one (named server)"
)
_LOOPBACK = "127.0.0.1"
_PORTS_TRIED_MAX = 10
_START_S = 5.0
_STOP_S = 3.0
_POLL_S = 0.01


def find_toxiproxy(environment: Mapping[str, str]) -> Path | None:
    """The binary that GRADSTORM_TOXIPROXY names, or toxiproxy-server on PATH; None when there is none.

    Raises ConfigurationError when the variable names something that cannot be run.
    """
    named = environment.get(BINARY_VARIABLE, "")
    if named:
        if not os.access(named, os.X_OK) or Path(named).is_dir():
            raise ConfigurationError(f"{BINARY_VARIABLE}={named} is no program that can be run")
        return Path(named)
    found = shutil.which(BINARY_NAME, path=environment.get("PATH"))
    return Path(found) if found else None


class ToxiproxyProcess:
    """A running server. `address` is its API's "host:port"; `version` what it says of itself."""

    def __init__(self, popen: subprocess.Popen[bytes], guard: subprocess.Popen[bytes], port: int) -> None:
        self._popen = popen
        self._guard = guard
        self.address = f"{_LOOPBACK}:{port}"
        self.version = ""

    @classmethod
    def start(cls, binary: Path, log_path: Path) -> ToxiproxyProcess:
        """Start one and wait until its API answers; it logs to `log_path`. Raises ToxiproxyUnreachable."""
        for _ in range(_PORTS_TRIED_MAX):
            server = cls(*_launch(binary, log_path, port := _free_port()), port)
            try:
                if server._listens():
                    server.version = Toxiproxy(server.address).wait_ready(_START_S, server.wait_gone)
                    return server
            except BaseException:
                server.stop()
                raise
            server.stop()
        raise ToxiproxyUnreachable(
            f"no port for Toxiproxy in {_PORTS_TRIED_MAX} tries; its log ends with: {log_tail(log_path)}"
        )

    @property
    def pid(self) -> int:
        return self._popen.pid

    def why_gone(self) -> str:
        """Empty while it runs."""
        code = self._popen.poll()
        return "" if code is None else f"Toxiproxy (PID {self.pid}) ended with exit code {code}"

    def wait_gone(self, seconds: float) -> None:
        """Return when it has ended, or after so long."""
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._popen.wait(seconds)

    def stop(self) -> None:
        """End it, and wait until it is gone; safe to call twice."""
        if self._popen.poll() is None:
            self._popen.terminate()
            try:
                self._popen.wait(_STOP_S)
            except subprocess.TimeoutExpired:
                self._popen.kill()
                self._popen.wait()
        assert self._guard.stdin is not None
        if not self._guard.stdin.closed:
            self._guard.stdin.close()
            self._guard.wait()

    def __enter__(self) -> ToxiproxyProcess:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def _listens(self) -> bool:
        """Whether this very process listens on the port: False when it ended or somebody else listens there."""
        until_s = time.monotonic() + _START_S
        port = int(self.address.rpartition(":")[2])
        while self._popen.poll() is None and time.monotonic() < until_s:
            taken = _is_open(port)
            try:
                connections = psutil.Process(self.pid).net_connections("tcp")
            except psutil.Error:
                return False
            if port in {there.laddr.port for there in connections if there.status == psutil.CONN_LISTEN}:
                return True
            if taken:  # and not by us
                return False
            self.wait_gone(_POLL_S)
        return False


def _launch(binary: Path, log_path: Path, port: int) -> tuple[subprocess.Popen[bytes], subprocess.Popen[bytes]]:
    """The server and the watchdog that ends it when this process dies."""
    try:
        with log_path.open("ab") as log:
            popen = subprocess.Popen(
                [str(binary), "-host", _LOOPBACK, "-port", str(port)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # Ctrl-C on the terminal is the driver's
            )
    except OSError as error:
        raise ToxiproxyUnreachable(f"cannot start {binary}: {error.strerror or error}") from error
    guard = subprocess.Popen(
        [sys.executable, "-I", "-S", watchdog.__file__],
        stdin=subprocess.PIPE,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        bufsize=0,
        start_new_session=True,
    )
    assert guard.stdin is not None
    guard.stdin.write(f"add {popen.pid} {watchdog.start_mark(popen.pid)}\n".encode())
    return popen, guard


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind((_LOOPBACK, 0))
        return int(probe.getsockname()[1])


def _is_open(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((_LOOPBACK, port)) == 0
