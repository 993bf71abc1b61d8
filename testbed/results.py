"""What a run came to, as one versioned document: the verifier's verdict, and what the testbed adds to it.

The testbed judges nothing. It adds where the run is, how its processes ended, what the history says about faults, and,
computed anew from the final published checkpoint, the hash of the parameters and how the model does on the held-out
data. `params_sha256` is over the parameters as little-endian float64 in the order of `training.models`.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from services.any_config import AnyRunConfig
from services.config import RunConfig
from services.records import DataChecked, FaultActed, FaultArmed, FaultMissed, FaultUndone, Regrouped
from testbed.engines.base import EngineOutcome, RunPlan
from testbed.exit_codes import ExitCode, exit_code_of
from testbed.final_state import FINAL, final_part, own_fingerprint, unlike_proved
from testbed.history_facts import read_facts
from testbed.run_folder import RunFolder, RunFolderError

SCHEMA = "gradstorm.run/1"
VERIFY_SCHEMA = "gradstorm.verify/1"
_VERDICTS = ("pass", "violated", "unknown")
_KILLING = ("kill", "stop", "power_cut")
_NOISE_FLOOR_IS = (
    "the error that rounding alone may leave in one element of the reduced gradient; services/invariants/"
    "gradient_exactness.py derives it"
)


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


def compose(plan: RunPlan, engine: str, folder: RunFolder, outcome: EngineOutcome) -> RunResult:
    """Put the document together; writes nothing."""
    final = final_part(plan, folder)
    exits = [asdict(one) for one in outcome.exits]
    unlike = unlike_proved(final, outcome.verdict.get("final", {}), outcome.stop_condition)
    unlike = unlike or _crashes(exits, outcome.stop_condition)
    verdict = _verdict(outcome.verdict, outcome.aborted or unlike)
    code = exit_code_of(verdict, outcome.stop_condition)
    document = {
        "schema": SCHEMA,
        "run_id": plan.config.run_id,
        "run_dir": str(folder.path),
        "scenario": plan.scenario.name,
        "engine": engine,
        "strategy": plan.config.strategy,
        "seed": plan.config.seed,
        "plants": list(plan.plants),
        "batch_note": batch_note(plan.config),
        "verdict": verdict,
        "exit_code": int(code),
        "stop_condition": outcome.stop_condition,
        "stop_reason": outcome.stop_reason,
        "aborted": outcome.aborted,
        **verifier_part(outcome.verdict, unlike),
        **history_part(folder),
        **final,
        "numerics": _numerics(plan, folder),
        "exits": exits,
        "replay": f"gradstorm replay {folder.path}",
    }
    return RunResult(document, folder.path, code)


def batch_note(config: AnyRunConfig) -> str:
    """What there is to say of a batch that the data cannot fill; "" where they can. Contexts of a text may repeat."""
    if not isinstance(config, RunConfig):
        return ""
    each, there = config.batch.size, config.sample_count
    wanted = each * config.workers if config.batch.mode == "per_worker" else each
    if wanted <= there:
        return ""
    asked = f"{each} for each of {config.workers} workers" if config.batch.mode == "per_worker" else f"{each}"
    return f"{asked}, and there are {there} samples to train on: while all take part, a step takes every one, an epoch"


def saved_result(folder: RunFolder) -> RunResult:
    """What a finished run came to, as its folder says. Raises RunFolderError while there is no verdict."""
    document = folder.verdict()
    if not document:
        raise RunFolderError(f"{folder.path} has no verdict; `gradstorm verify {folder.path}` judges its history")
    return RunResult(document, folder.path, ExitCode(document["exit_code"]))


def judged_again(folder: RunFolder, verdict: Mapping[str, Any]) -> RunResult:
    """What a saved run came to, with a verdict that was made anew from its history; writes nothing."""
    saved, manifest = folder.verdict(), folder.manifest()
    condition = str(verdict.get("condition", ""))
    kept = {**dict.fromkeys(FINAL), **saved}
    unlike = unlike_proved(kept, verdict.get("final", {}), condition) if saved else ""
    unlike = unlike or _crashes(saved.get("exits", []), condition)
    word = _verdict(verdict, str(saved.get("aborted", "")) or unlike)
    code = exit_code_of(word, condition)
    document = {
        **{name: manifest[name] for name in ("run_id", "scenario", "engine", "strategy", "seed", "plants")},
        **dict.fromkeys(FINAL),
        "batch_note": "",
        "aborted": "",
        "exits": [],
        "stop_reason": "",
        **saved,
        "schema": VERIFY_SCHEMA,
        "run_dir": str(folder.path),
        "verdict": word,
        "saved_verdict": saved.get("verdict"),
        "exit_code": int(code),
        "stop_condition": condition,
        **verifier_part(verdict, unlike),
        **history_part(folder),
        "replay": f"gradstorm replay {folder.path}",
    }
    return RunResult(document, folder.path, code)


def verifier_part(verdict: Mapping[str, Any], unlike: str = "") -> dict[str, Any]:
    """The verifier's document in the words of ours; zeros and nulls when it never came."""
    gradient = verdict.get("gradient", {})
    return {
        "reasons": [
            *verdict.get("reasons", ["the verifier gave no verdict"]),
            *_open(verdict),
            *filter(None, [unlike]),
        ],
        "steps_committed": verdict.get("steps_committed", 0),
        "steps_checked": verdict.get("steps_checked", 0),
        "steps_void": verdict.get("steps_void", 0),
        "worst_gradient_error": gradient.get("worst_error"),
        "noise_floor": gradient.get("noise_floor"),
        "noise_floor_is": _NOISE_FLOOR_IS,
        "tolerance": gradient.get("tolerance"),
        "smallest_detectable_bug": gradient.get("smallest_detectable_bug"),
        "gradient": gradient,
        "invariants": {entry["name"]: _invariant(entry) for entry in verdict.get("invariants", [])},
        "observations": verdict.get("observations", []),
        "samples": verdict.get("samples", {"epochs": 0, "committed": 0, "lost": 0, "repeated": 0}),
        "history": verdict.get("history", {}),
    }


def _open(verdict: Mapping[str, Any]) -> list[str]:
    """Why invariants are not known to hold, where the whole verdict is unknown for want of that."""
    unknown = [entry for entry in verdict.get("invariants", []) if entry["verdict"] == verdict["verdict"] == "unknown"]
    return [f"{entry['name']}: {'; '.join(entry['reasons'])}" for entry in unknown]


def history_part(folder: RunFolder) -> dict[str, Any]:
    """Faults with their witnesses, kills and generations, as the history tells them."""
    faults: dict[str, dict[str, Any]] = {}
    generation = 0
    for told in read_facts(folder.history_path, (FaultArmed, FaultActed, FaultUndone, FaultMissed, Regrouped)):
        match told.fact:
            case FaultArmed() as armed:
                row = _fault_row(faults, armed.fault)
                row.update(kind=armed.kind, target=armed.target, trigger=armed.trigger)
            case FaultActed() as acted:
                _fault_row(faults, acted.fault).update(state="acted", witness=acted.witness, acted_seq=told.seq)
            case FaultUndone() as undone:
                _fault_row(faults, undone.fault).update(state="undone", undo=undone.witness, undone_seq=told.seq)
            case FaultMissed() as missed:
                _fault_row(faults, missed.fault).update(state="missed", reason=missed.reason, undone_seq=told.seq)
            case Regrouped() as regrouped:
                generation = max(generation, regrouped.generation)
    kills = sum(_deaths(row) for row in faults.values())
    return {"kills": kills, "generations": generation, "faults": list(faults.values())}


def _verdict(told: Mapping[str, Any], aborted: str) -> str:
    """The verifier's; a run that was given up, or left another state than was proved, is no pass, however clean."""
    verdict = str(told.get("verdict", "unknown"))
    assert verdict in _VERDICTS, f"a verdict is {verdict!r}"
    return "unknown" if aborted and verdict == "pass" else verdict


def _crashes(exits: Sequence[Mapping[str, Any]], condition: str) -> str:
    """Processes of a finished run that ended badly unasked: whatever is proved, something happened unaccounted for."""
    unasked = [f"{one['role']} ended with code {one['exit_code']}" for one in exits if not one["expected"]]
    return f"{', '.join(unasked)}, and no fault asked for it; see logs/" if unasked and condition == "finished" else ""


def _invariant(entry: Mapping[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in entry.items() if key not in ("name", "checks")} | {"checked": entry["checks"]}


def _fault_row(faults: dict[str, dict[str, Any]], name: str) -> dict[str, Any]:
    return faults.setdefault(name, {"fault": name, "kind": "", "target": "", "state": "armed", "witness": {}})


def _deaths(row: Mapping[str, Any]) -> int:
    """How many processes a fault killed: one, or those that its witness lists."""
    if row["kind"] not in _KILLING or not row["witness"]:
        return 0
    return len(str(row["witness"].get("killed", row["target"])).split(","))


def _numerics(plan: RunPlan, folder: RunFolder) -> dict[str, Any]:
    """Fingerprints of this process and of the members; equality is demanded bitwise where they agree."""
    checked = [told.fact for told in read_facts(folder.history_path, (DataChecked,))]
    members = {fact.numerics for fact in checked if isinstance(fact, DataChecked)}
    return {
        "driver": own_fingerprint(plan.config),
        "members": sorted(members),
        "equality": "bitwise" if len(members) <= 1 else "tolerance across machines",
    }
