"""Role processes: exit codes as the parent sees them, and nothing left behind, whatever happens to the driver."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

from services.shell.loop import run
from testbed.engines.base import EngineError
from testbed.engines.process import ProcessGroup, log_tail
from testbed.engines.watchdog import follow, kill_registered, start_mark
from tests.testbed.waiting import wait_until

SLEEPER = [sys.executable, "-S", "-c", "print('up', flush=True); import signal; signal.pause()"]


class Exits:
    """Collects what a group tells."""

    def __init__(self) -> None:
        self.seen: list[tuple[str, int, int]] = []

    def __call__(self, role: str, launch: int, exit_code: int) -> None:
        self.seen.append((role, launch, exit_code))


def test_exit_codes_are_those_of_waitpid(tmp_path: Path) -> None:
    async def body() -> list[tuple[str, int, int]]:
        exits = Exits()
        group = ProcessGroup(exits)
        group.start("worker-1", 1, [sys.executable, "-S", "-c", "raise SystemExit(7)"], os.environ, tmp_path / "a.log")
        group.start("worker-2", 3, SLEEPER, os.environ, tmp_path / "b.log")
        group.kill("worker-2")
        assert await group.wait_gone(10) == ()
        await group.close()
        return exits.seen

    assert sorted(run(body())) == [("worker-1", 1, 7), ("worker-2", 3, -signal.SIGKILL)]


def test_a_stopped_process_is_named_and_then_killed(tmp_path: Path) -> None:
    async def body() -> list[tuple[str, int, int]]:
        exits = Exits()
        group = ProcessGroup(exits)
        group.start("worker-1", 1, SLEEPER, os.environ, tmp_path / "a.log")
        group.suspend("worker-1")
        assert await group.wait_gone(0.2) == ("worker-1",)
        await group.close()
        return exits.seen

    assert run(body()) == [("worker-1", 1, -signal.SIGKILL)]


def test_a_program_that_is_not_there_is_an_engine_error(tmp_path: Path) -> None:
    async def body() -> None:
        group = ProcessGroup(Exits())
        try:
            with pytest.raises(EngineError, match="cannot start worker-1: No such file"):
                group.start("worker-1", 1, ["/nonexistent/python"], os.environ, tmp_path / "a.log")
        finally:
            await group.close()

    run(body())


def test_polling_serves_where_there_is_no_pidfd(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delattr(os, "pidfd_open", raising=False)
    test_exit_codes_are_those_of_waitpid(tmp_path)


DRIVER = """
import asyncio, os, sys
from pathlib import Path
from testbed.engines.process import ProcessGroup

async def body():
    group = ProcessGroup(lambda role, launch, code: None)
    sleeper = [sys.executable, "-S", "-c", "import signal; signal.pause()"]
    pids = [group.start(f"worker-{k}", 1, sleeper, os.environ, Path(sys.argv[1]) / f"{k}.log").pid for k in range(3)]
    group.suspend("worker-1")
    print(*pids, flush=True)
    await asyncio.Event().wait()

asyncio.run(body())
"""


def test_a_killed_driver_leaves_nothing(tmp_path: Path) -> None:
    script = tmp_path / "driver.py"
    script.write_text(textwrap.dedent(DRIVER))
    root = Path(__file__).resolve().parents[2]
    with subprocess.Popen(
        [sys.executable, str(script), str(tmp_path)],
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": str(root)},
        text=True,
    ) as driver:
        assert driver.stdout is not None
        pids = [int(word) for word in driver.stdout.readline().split()]
        assert len(pids) == 3
        assert all(start_mark(pid) for pid in pids)
        driver.kill()
    assert wait_until(lambda: not any(start_mark(pid) for pid in pids), 5.0)


def test_a_reused_pid_is_left_alone() -> None:
    with subprocess.Popen(SLEEPER, stdout=subprocess.DEVNULL) as stranger:
        registered: dict[int, str] = {}
        follow([f"add {stranger.pid} 12345", "noise"], registered)
        assert kill_registered(registered) == []
        assert stranger.poll() is None
        follow([f"add {stranger.pid} {start_mark(stranger.pid)}"], registered)
        assert kill_registered(registered) == [stranger.pid]


def test_a_removed_pid_is_forgotten() -> None:
    registered: dict[int, str] = {}
    follow([f"add {os.getpid()} {start_mark(os.getpid())}", f"remove {os.getpid()}"], registered)
    assert registered == {}


def test_the_tail_of_a_log(tmp_path: Path) -> None:
    path = tmp_path / "a.log"
    assert log_tail(path) == ""
    path.write_text("\n".join(f"line {number}" for number in range(100)))
    assert log_tail(path, 2) == "line 98\nline 99"


AS_A_ROLE = """
import contextlib, runpy, sys
sys.argv[1:] = ["--help"]
with contextlib.suppress(SystemExit), contextlib.redirect_stdout(sys.stderr):
    runpy.run_module("services.shell", run_name="__main__")
import testbed.engines.local_cast
print(*(name for name, module in sys.modules.items() if module is not None))
"""


def test_a_role_loads_nothing_that_only_the_driver_needs() -> None:
    done = subprocess.run([sys.executable, "-c", AS_A_ROLE], capture_output=True, text=True, timeout=60, check=True)
    loaded = {name.partition(".")[0] for name in done.stdout.split()}
    assert "numpy" in loaded
    assert not loaded & {"pydantic", "sklearn", "autograd", "docker", "typer", "yaml", "requests", "rich"}
