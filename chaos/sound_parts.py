"""Of a scenario with mistakes of structure: what makes no sense in its sound parts, so that both are said in one go.

Nothing is said that would not be true once the structure is mended. What stands on an unsound part (how many workers
and steps there are, who was added, what is promised of the schedule) is taken at its most lenient, or not looked at.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from pydantic import ValidationError

from chaos.checks import fault_problems, problems
from chaos.problem import Path, Problem
from chaos.training_setup import STEPS_MAX, WORKERS_MAX

if TYPE_CHECKING:
    from chaos.scenario import Scenario

_ASIDE = frozenset({"name", "title", "description", "expect", "clean_steps", "liveness_bound_ms"})
_NEUTRAL: dict[str, Any] = {"name": "x", "title": "x", "clean_steps": 1}
_LENIENT: dict[str, Any] = {"workers": WORKERS_MAX, "steps": STEPS_MAX}
_ANY_SIZE: dict[str, Any] = {"dataset": {"kind": "file", "path": "x.csv"}}


def sense_beside(unsound: Collection[Path], data: dict[str, Any], model: type[Scenario]) -> list[Problem]:
    """Complaints about `data` beside those of structure, which are at the paths `unsound`."""
    heads = {str(path[0]) for path in unsound if path}
    unknown = heads - set(model.model_fields)
    if not all(unsound) or (unknown and "training" not in data):
        return []  # the training may be what is misspelt, and it says what every other part means
    kept = {name: value for name, value in data.items() if name not in heads} | {
        name: value for name, value in _NEUTRAL.items() if name in heads
    }
    dropped = {path[1] for path in unsound if path[0] == "faults" and len(path) > 1}
    faults = data.get("faults") or []
    places = [at for at in range(len(faults)) if at not in dropped] if isinstance(faults, list) else []
    kept["faults"] = [faults[at] for at in places]
    if "training" in heads or unknown or dropped:
        training = data.get("training", {})
        if not isinstance(training, dict) or ("training" in heads and "shard" in repr(data)):
            return []  # whether it is of shards or of workers decides what everything else means
        kept["training"] = _most_lenient(training, {path for path in unsound if path[0] == "training"}, bool(dropped))
    try:
        scenario = model.model_validate(kept)
    except ValidationError:
        return []
    open_to_all = [name for name in ("engines", "strategies") if name in heads or (unknown and name not in data)]
    scenario = scenario.model_copy(update={name: [] for name in open_to_all})
    found = problems(scenario) if heads <= _ASIDE else fault_problems(scenario)
    return [_at_its_place(problem, places) for problem in found]


def _most_lenient(training: dict[str, Any], unsound: Collection[Path], more_workers: bool) -> dict[str, Any]:
    """The training with room for whatever the unsound parts may say once they are mended."""
    sound = {name: value for name, value in training.items() if not any(name in path[1:2] for path in unsound)}
    if "kind" in training:
        return sound
    return _LENIENT | sound | _ANY_SIZE | ({"workers": WORKERS_MAX} if more_workers else {})


def _at_its_place(problem: Problem, places: list[int]) -> Problem:
    """With the number that the fault has among all, the unsound ones included."""
    if len(problem.path) < 2 or problem.path[0] != "faults":
        return problem
    return Problem(("faults", places[int(problem.path[1])], *problem.path[2:]), problem.text)
