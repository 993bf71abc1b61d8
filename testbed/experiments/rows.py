"""Running the rows: each a run like any other, kept as one small JSON file, so that an interrupted matrix goes on.

A kept row counts only if it was made by the same configuration, engine, numerics and version; otherwise it is run anew.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import testbed
from chaos.scenario import Scenario
from testbed.api import one_blas_thread
from testbed.engines import engine_named
from testbed.engines.base import ProgressSink
from testbed.environment import versions
from testbed.experiments.baseline import Committed
from testbed.experiments.matrix import Row
from testbed.experiments.one_process import IN_PROCESS, train
from testbed.run_folder import write_json
from training.numerics import fingerprint

KEPT = (
    "verdict", "exit_code", "reasons", "stop_condition", "stop_reason", "steps_committed", "steps_checked",
    "final_eval_loss", "params_sha256", "payload_bytes", "payload_bytes_total", "dense_bytes", "boundaries", "density",
    "ratio", "rms_error", "max_error", "ages", "ages_are",
    "evaluation_curve",
)  # fmt: skip


@dataclass(frozen=True, slots=True)
class RowRunner:
    """Runs rows under `home` on `engine`. `keep`: leave the whole run folders (about 100 MB each)."""

    home: Path
    engine: str
    keep: bool = False

    def run(self, name: str, scenario: Scenario, sink: Callable[[], ProgressSink]) -> tuple[dict[str, Any], bool]:
        """The row's document, and whether it was there already. Raises GradstormError when it cannot be run."""
        path, digest = self.home / f"{name}.json", self._digest(scenario)
        before = _read(path)
        if before.get("digest") == digest:
            return before, True
        folder = self.home / "runs" / name
        if folder.exists():
            shutil.rmtree(folder)  # of an earlier, interrupted attempt at this very row
        result = testbed.run(scenario, self.engine, out=folder, progress=sink())
        row = _as_read({"name": name, "digest": digest, **{key: result.document.get(key) for key in KEPT}})
        row["run_dir"] = str(folder)
        if result.passed and not self.keep:
            shutil.rmtree(folder)
            row["run_dir"] = ""
        if result.verdict != "unknown":
            write_json(path, row)
        return row, False

    def cannot(self, row: Row, scenario: Scenario) -> str:
        """Why the row cannot be run here; "" when it can."""
        if self.engine == IN_PROCESS:
            return "its ages are measured, which takes a run" if row.measured else ""
        return "; ".join(engine_named(self.engine).refusals(scenario, "shards"))

    def compute(self, row: Row, scenario: Scenario, committed: Committed, shards: int) -> tuple[dict[str, Any], bool]:
        """As `run`, in this process: no roles, so nothing is verified and the verdict is unknown."""
        path, digest = self.home / f"{row.name}.json", self._digest(scenario)
        before = _read(path)
        if before.get("digest") == digest:
            return before, True
        with one_blas_thread():
            found = train(committed.baseline, committed.corpus, shards, row.crossing)
        kept = {"name": row.name, "digest": digest, **dict.fromkeys(KEPT), **found, "verdict": "unknown"}
        write_json(path, kept | {"reasons": ["computed in one process; nothing was verified"]})
        return _read(path), False

    def _digest(self, scenario: Scenario) -> str:
        parts = [scenario.model_dump(mode="json"), self.engine, fingerprint(), versions()]
        return hashlib.sha256(json.dumps(parts, sort_keys=True).encode()).hexdigest()


def _as_read(row: dict[str, Any]) -> dict[str, Any]:
    """A row as it comes out of its file, so that one that was run now equals one that was kept (tuples are lists)."""
    return dict(json.loads(json.dumps(row)))


def _read(path: Path) -> dict[str, Any]:
    try:
        return dict(json.loads(path.read_text(encoding="utf-8")))
    except (OSError, ValueError):
        return {}
