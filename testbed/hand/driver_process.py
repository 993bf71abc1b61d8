"""`python -m testbed.hand.driver_process REQUEST`: the driver of a standing testbed, started by `gradstorm up`.

It outlives the command that started it. Until everybody is up it writes what happens to stdout, one JSON line each
({"note"}, {"waiting"}, then {"up"} or {"error", "code"}), and then closes it. SIGTERM ends it in order, as `down` does.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import sys
import traceback
from dataclasses import asdict
from pathlib import Path
from typing import Any

from testbed.environment import limit_blas_threads

limit_blas_threads()

from testbed.exit_codes import ExitCode  # noqa: E402 - numpy loads below, not before

CRASH = "driver.crash.log"  # in the run folder's logs


def main(request: dict[str, Any]) -> int:
    """Prepare, bring up, stay until taken down; returns the exit code."""
    from testbed.hand.control import Standing
    from testbed.hand.request import prepare_standing
    from training.errors import GradstormError

    told = _Told()
    logs: Path | None = None

    def up(standing: Standing) -> None:
        told.tell({"up": asdict(standing)})
        told.no_more()

    try:
        from testbed.api import carry_out

        prepared, picture = prepare_standing(request, told.tell, up)
        told.tell({"folder": str(prepared.folder_path), "run_id": prepared.plan.config.run_id})
        logs = prepared.folder_path / "logs"
        carry_out(prepared, picture)
    except GradstormError as error:
        return told.failed(str(error), _code_of(error))
    except OSError as error:
        return told.failed(str(error), ExitCode.ENVIRONMENT)
    except KeyboardInterrupt:
        return told.failed("interrupted; nothing is left", ExitCode.INTERRUPTED)
    except Exception as error:
        if logs is not None and logs.is_dir():  # nobody reads what we write to stderr any more
            (logs / CRASH).write_text(traceback.format_exc(), encoding="utf-8")
        told.failed(f"an error of Gradstorm's own: {error!r}", ExitCode.ENVIRONMENT)
        raise
    return int(ExitCode.PASS)


def _code_of(error: Exception) -> ExitCode:
    from testbed.engines.base import EngineError

    return ExitCode.ENVIRONMENT if isinstance(error, EngineError) else ExitCode.USAGE


class _Told:
    """Whoever started us may be gone: that is no reason to fail."""

    def __init__(self) -> None:
        self._open = True

    def tell(self, line: dict[str, Any]) -> None:
        if self._open:
            with contextlib.suppress(OSError, ValueError):
                sys.stdout.write(json.dumps(line) + "\n")
                sys.stdout.flush()

    def failed(self, why: str, code: ExitCode) -> int:
        self.tell({"error": why, "code": int(code)})
        sys.stderr.write(f"{why}\n")
        return int(code)

    def no_more(self) -> None:
        self._open = False
        os.dup2(os.open(os.devnull, os.O_WRONLY), 1)


if __name__ == "__main__":
    for _number in (signal.SIGTERM, signal.SIGHUP):
        signal.signal(_number, signal.default_int_handler)
    sys.exit(main(json.loads(sys.argv[1])))
