"""What a run came to, as one versioned document: the verifier's verdict, and what the testbed adds to it.

The testbed judges nothing. It adds where the run is, how its processes ended, and, computed anew from the final
published checkpoint, the hash of the parameters and how the model does on the held-out data. `params_sha256` is over
the parameters as little-endian float64 in the order of `training.models`.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from testbed.engines.base import EngineOutcome, RunPlan
from testbed.exit_codes import ExitCode, exit_code_of
from testbed.run_folder import RunFolder
from training.checkpoint import newest_good
from training.digest import array_digest
from training.errors import CheckpointError
from training.models import evaluate
from training.real_disk import RealDisk

SCHEMA = "gradstorm.run/1"
_VERDICTS = ("pass", "violated", "unknown")

# What the verifier's document must bring, and what stands there when it never came.
_ABSENT: dict[str, Any] = {
    "steps_committed": 0,
    "steps_checked": 0,
    "kills": 0,
    "generations": 0,
    "worst_gradient_error": None,
    "noise_floor": None,
    "tolerance": None,
    "smallest_detectable_bug": None,
    "invariants": {},
    "faults": [],
    "observations": [],
    "samples": {"epochs": 0, "committed": 0, "lost": 0, "repeated": 0},
    "numerics": {},
}


@dataclass(frozen=True, slots=True)
class RunResult:
    """A run that ended. `document` is what `--json` prints and verdict.json holds."""

    document: dict[str, Any]
    folder: Path
    exit_code: ExitCode

    @property
    def verdict(self) -> str:
        """ "pass", "violated" or "unknown"."""
        return str(self.document["verdict"])

    @property
    def passed(self) -> bool:
        """Whether everything that was checked holds, and everything that must be checked was."""
        return self.exit_code is ExitCode.PASS


@dataclass(frozen=True, slots=True)
class FinalModel:
    """The last published checkpoint, and how its model does on the held-out samples (mean cross-entropy, share)."""

    step: int | None = None
    params_sha256: str | None = None
    loss: float | None = None
    accuracy: float | None = None
    skipped: tuple[str, ...] = field(default=())


def compose(plan: RunPlan, engine: str, folder: RunFolder, outcome: EngineOutcome) -> RunResult:
    """Put the document together; writes nothing."""
    verdict = _verdict(outcome)
    code = exit_code_of(verdict, outcome.stop_condition)
    final = final_model(plan, folder)
    document = {
        **_ABSENT,
        **outcome.verdict,
        "schema": SCHEMA,
        "run_id": plan.config.run_id,
        "run_dir": str(folder.path),
        "scenario": plan.scenario.name,
        "engine": engine,
        "strategy": plan.config.strategy,
        "seed": plan.config.seed,
        "plants": list(plan.plants),
        "verdict": verdict,
        "exit_code": int(code),
        "stop_condition": outcome.stop_condition,
        "stop_reason": outcome.stop_reason,
        "aborted": outcome.aborted,
        "final_step": final.step,
        "params_sha256": final.params_sha256,
        "final_loss": final.loss,
        "final_accuracy": final.accuracy,
        "exits": [asdict(one) for one in outcome.exits],
        "replay": f"gradstorm replay {folder.path}",
    }
    return RunResult(document, folder.path, code)


def _verdict(outcome: EngineOutcome) -> str:
    """The verifier's; a run that was given up is never a pass, however clean its history is up to there."""
    verdict = str(outcome.verdict.get("verdict", "unknown"))
    assert verdict in _VERDICTS, f"a verdict is {verdict!r}"
    return "unknown" if outcome.aborted and verdict == "pass" else verdict


def final_model(plan: RunPlan, folder: RunFolder) -> FinalModel:
    """Read the final published checkpoint and evaluate it. Nulls when there is none that can be read."""
    config = plan.config
    try:
        _, found, damages = newest_good(RealDisk(), str(folder.checkpoints), config.model, config.dataset_sha256)
    except (CheckpointError, OSError):
        return FinalModel()
    held_out = (plan.dataset.test_features, plan.dataset.test_labels)
    loss, accuracy = evaluate(config.model, found.parameters, *held_out)
    return FinalModel(
        step=found.step,
        params_sha256=array_digest(found.parameters),
        loss=loss,
        accuracy=accuracy,
        skipped=tuple(f"{damage.name}: {damage.reason}" for damage in damages),
    )
