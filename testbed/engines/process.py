"""One operating-system process per role: started by subprocess (never fork), signalled by PID, reaped here.

`ProcessGroup` belongs to one asyncio loop. It starts the watchdog before the first role, registers every PID with it,
and tells `on_exit(role, launch, exit_code)` once per process, in the loop. Signals and reaping happen in the loop's
thread only, so that a PID which is signalled is one that was not reaped and cannot be somebody else's.

Duty of the caller: `await group.close()` on every way out.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from testbed.engines.base import EngineError
from testbed.engines.watchdog import start_mark

_POLL_S = 0.01  # where the system has no pidfd
_LOG_TAIL_BYTES = 2000

OnExit = Callable[[str, int, int], None]


@dataclass(slots=True, eq=False)
class RoleProcess:
    """One launch of one role."""

    role: str
    launch: int
    popen: subprocess.Popen[bytes]
    log_path: Path
    suspended: bool = False
    exit_code: int | None = None

    @property
    def pid(self) -> int:
        """Valid for signals while `exit_code` is None."""
        return self.popen.pid


class ProcessGroup:
    """The processes of one run. Not thread-safe: everything happens in the loop that made it."""

    def __init__(self, on_exit: OnExit) -> None:
        self._on_exit = on_exit
        self._loop = asyncio.get_running_loop()
        self._live: dict[str, RoleProcess] = {}
        self._pollers: set[asyncio.Task[None]] = set()
        self._changed = asyncio.Event()
        self._watchdog = _start_watchdog()

    @property
    def live(self) -> dict[str, RoleProcess]:
        """Role -> its running process."""
        return dict(self._live)

    def start(
        self, role: str, launch: int, command: Sequence[str], environment: Mapping[str, str], log_path: Path
    ) -> RoleProcess:
        """Start one process in a session of its own, output appended to `log_path`. Raises EngineError."""
        assert role not in self._live, f"{role} runs already"
        try:
            with log_path.open("ab") as log:
                popen = subprocess.Popen(
                    list(command),
                    stdin=subprocess.DEVNULL,
                    stdout=log,
                    stderr=subprocess.STDOUT,
                    env=dict(environment),
                    start_new_session=True,  # Ctrl-C on the terminal is the driver's, who ends the roles in order
                )
        except OSError as error:
            raise EngineError(f"cannot start {role}: {error.strerror or error}") from error
        process = RoleProcess(role, launch, popen, log_path)
        self._live[role] = process
        self._tell_watchdog(f"add {popen.pid} {start_mark(popen.pid)}")
        self._watch(process)
        return process

    def kill(self, role: str) -> None:
        """SIGKILL; `on_exit` follows."""
        self._signal(role, signal.SIGKILL)

    def terminate(self, role: str) -> None:
        """SIGTERM: asks the role's shell to end."""
        self._signal(role, signal.SIGTERM)

    def suspend(self, role: str) -> None:
        """SIGSTOP."""
        self._signal(role, signal.SIGSTOP)
        if role in self._live:
            self._live[role].suspended = True

    def resume(self, role: str) -> None:
        """SIGCONT."""
        self._signal(role, signal.SIGCONT)
        if role in self._live:
            self._live[role].suspended = False

    async def wait_gone(self, timeout_s: float) -> tuple[str, ...]:
        """Wait until no process is left; returns the roles that still run when the time is over."""
        deadline = self._loop.time() + timeout_s
        while self._live and (left := deadline - self._loop.time()) > 0:
            self._changed.clear()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(self._changed.wait(), left)
        return tuple(sorted(self._live))

    async def close(self, kill_wait_s: float = 5.0) -> None:
        """Kill and reap what still runs, then let the watchdog go. Safe to call twice."""
        for role in sorted(self._live):
            self.kill(role)
        left = await self.wait_gone(kill_wait_s)
        await self._close_watchdog()
        for poller in self._pollers:
            poller.cancel()
        if left:
            raise EngineError(f"still running after SIGKILL and {kill_wait_s:g} s: {', '.join(left)}")

    def _signal(self, role: str, number: signal.Signals) -> None:
        process = self._live.get(role)
        if process is not None and process.exit_code is None:
            process.popen.send_signal(number)

    def _watch(self, process: RoleProcess) -> None:
        """Have `_reap` called once the process is gone: by its pidfd, or by polling where there is none."""
        try:
            descriptor = os.pidfd_open(process.pid)
        except (AttributeError, OSError):
            poller = self._loop.create_task(self._poll(process))
            self._pollers.add(poller)
            poller.add_done_callback(self._pollers.discard)
            return
        self._loop.add_reader(descriptor, self._gone, process, descriptor)

    def _gone(self, process: RoleProcess, descriptor: int) -> None:
        self._loop.remove_reader(descriptor)
        os.close(descriptor)
        self._reap(process)

    async def _poll(self, process: RoleProcess) -> None:
        while process.popen.poll() is None:
            await asyncio.sleep(_POLL_S)
        self._reap(process)

    def _reap(self, process: RoleProcess) -> None:
        process.exit_code = process.popen.wait()
        self._tell_watchdog(f"remove {process.pid}")
        del self._live[process.role]
        self._changed.set()
        self._on_exit(process.role, process.launch, process.exit_code)

    def _tell_watchdog(self, line: str) -> None:
        assert self._watchdog.stdin is not None
        try:
            self._watchdog.stdin.write(line.encode() + b"\n")
        except (BrokenPipeError, ValueError) as error:
            raise EngineError(f"the watchdog process {self._watchdog.pid} is gone; nothing guards the roles") from error

    async def _close_watchdog(self) -> None:
        assert self._watchdog.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self._watchdog.stdin.close()
        deadline = self._loop.time() + 5.0
        while self._watchdog.poll() is None and self._loop.time() < deadline:
            await asyncio.sleep(_POLL_S)
        if self._watchdog.poll() is None:
            self._watchdog.kill()
            self._watchdog.wait()


def log_tail(path: Path, lines: int = 8) -> str:
    """The end of a role's log, for a message about why it is not there."""
    try:
        content = path.read_bytes()[-_LOG_TAIL_BYTES:]
    except OSError:
        return ""
    return "\n".join(content.decode(errors="replace").splitlines()[-lines:])


def _start_watchdog() -> subprocess.Popen[bytes]:
    script = Path(__file__).with_name("watchdog.py")
    try:
        return subprocess.Popen(
            [sys.executable, "-I", "-S", str(script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            bufsize=0,
            start_new_session=True,
        )
    except OSError as error:
        raise EngineError(f"cannot start the watchdog process: {error.strerror or error}") from error
