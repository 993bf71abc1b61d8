"""Starting the driver of a testbed and waiting, as long as it takes and no longer, until it says that all is up."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import psutil

from testbed.engines.base import EngineError
from testbed.hand.control import Standing, ask
from training.errors import ConfigurationError

_ROOT = Path(__file__).resolve().parents[2]
_DOWN_S = 120.0


def bring_up(request: dict[str, Any], say: Callable[[str], None]) -> Standing:
    """Start the driver and wait until the testbed is up. Raises EngineError or ConfigurationError with its reason.

    Interrupted while it waits, it takes down what there is and raises KeyboardInterrupt.
    """
    with subprocess.Popen(
        [sys.executable, "-P", "-m", "testbed.hand.driver_process", json.dumps(request)],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "PYTHONPATH": os.pathsep.join([str(_ROOT), os.environ.get("PYTHONPATH", "")]).rstrip(":")},
        start_new_session=True,  # it stays when the terminal goes
        text=True,
    ) as driver:
        try:
            standing = _listen(driver, say)
        except BaseException:
            with contextlib.suppress(ProcessLookupError):
                driver.send_signal(signal.SIGTERM)
            driver.wait(_DOWN_S)
            raise
        driver.returncode = 0  # it is not waited for: it stays
        return standing


def _listen(driver: subprocess.Popen[str], say: Callable[[str], None]) -> Standing:
    assert driver.stdout is not None
    for line in driver.stdout:
        told = json.loads(line)
        if "up" in told:
            return Standing(**told["up"])
        if "error" in told:
            kind = ConfigurationError if told["code"] == 2 else EngineError
            raise kind(told["error"])
        for text in (told.get("note"), told.get("waiting")):
            if text:
                say(str(text))
    raise EngineError(f"the testbed's driver ended with exit code {driver.wait()} and said nothing")


def take_down(standing: Standing) -> None:
    """Ask the driver to end in order, and wait until it is gone. Raises EngineError when it does not."""
    ask(standing, {"do": "down"})
    try:
        psutil.Process(standing.pid).wait(_DOWN_S)
    except psutil.NoSuchProcess:
        return
    except psutil.TimeoutExpired as error:
        raise EngineError(
            f"the driver of testbed {standing.run_id} (PID {standing.pid}) does not end within {_DOWN_S:.0f} s;"
            " `gradstorm clean --all` removes what it has"
        ) from error
