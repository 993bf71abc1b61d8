"""What pydantic complains about, in our words: the place in the scenario, and the nearest name that would do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, get_args

from pydantic import BaseModel
from pydantic_core import ErrorDetails

from chaos.fault_kinds.base import TimeTrigger, nearest
from chaos.faults import KINDS
from chaos.problem import Path, Problem

HINTS = {
    "delay": "latency",
    "restart": "kill with relaunch_at",
    "relaunch": "kill with relaunch_at",
    "stop": "pause",
    "suspend": "pause",
    "slow": "straggle",
    "join": "add",
    "kill_all": "kill with target: everyone",
}
_WORDS = {
    "int_type": "expected a whole number",
    "float_type": "expected a number",
    "string_type": "expected a word",
    "bool_type": "expected true or false",
    "list_type": "expected a list",
    "model_type": "expected keys and values",
    "model_attributes_type": "expected keys and values",
    "dict_type": "expected keys and values",
    "missing": "is missing",
    "union_tag_not_found": "kind is missing",
}


def explain(error: ErrorDetails, root: type[BaseModel], data: Any) -> Problem:
    """One complaint of pydantic about `data`, validated as a `root`."""
    path = _path(error["loc"])
    context: Mapping[str, Any] = error.get("ctx", {})
    match error["type"]:
        case "extra_forbidden":
            return Problem(path, f"unknown key{_where_known(path, root, data)}")
        case "union_tag_invalid":
            return Problem((*path, "kind"), _unknown_kind(str(context["tag"])))
        case "literal_error":
            word = path[-2] if isinstance(path[-1], int) else path[-1]
            return Problem(path, f"unknown word for {word}: {error['input']!r}{_nearest_literal(error)}")
        case "greater_than_equal" | "greater_than" | "less_than_equal" | "less_than":
            return Problem(path, f"{error['input']!r} is out of range: {_range_text(error['type'], context)}")
        case "string_pattern_mismatch":
            return Problem(path, f"{error['input']!r} must be lower-case letters, digits and hyphens")
        case kind if kind in _WORDS:
            got = "" if kind in ("missing", "union_tag_not_found") else f", not {error['input']!r}"
            return Problem(path, _WORDS[kind] + got)
        case _:
            return Problem(path, error["msg"])


def without_echoes(found: Sequence[Problem]) -> list[Problem]:
    """A misspelt key is one mistake: the complaint about it names the right key, so that "is missing" adds nothing."""
    return [problem for problem in found if not any(_misspelt(other, problem) for other in found)]


def _misspelt(other: Problem, missing: Problem) -> bool:
    here = missing.text == _WORDS["missing"] and other.path[:-1] == missing.path[:-1]
    return here and bool(missing.path) and f"did you mean {missing.path[-1]!r}?" in other.text


def _where_known(path: Path, root: type[BaseModel], data: Any) -> str:
    """What belongs one level further in, in the training of a scenario, or else the nearest key."""
    key = str(path[-1])
    if len(path) == 1 and "training" in root.model_fields:
        inner = {name for model in _models_in(root.model_fields["training"].annotation) for name in model.model_fields}
        if key in inner:
            return "; it belongs under 'training:'"
    return nearest(key, _keys_at(root, path[:-1], data))


def _path(location: tuple[str | int, ...]) -> Path:
    """Without the tags that pydantic adds for the member of a union."""
    path = [part for part in location if not (isinstance(part, str) and part.startswith("("))]
    if len(path) > 2 and path[0] == "faults" and path[2] in KINDS:
        del path[2]
    return tuple(path)


def _unknown_kind(word: str) -> str:
    if word in HINTS:
        return f"unknown fault {word!r}; that is {HINTS[word]}"
    return f"unknown fault {word!r}{nearest(word, list(KINDS))}"


def _range_text(kind: str, context: Mapping[str, Any]) -> str:
    words = {"ge": "at least", "gt": "above", "le": "at most", "lt": "below"}
    return " and ".join(f"{words[name]} {value}" for name, value in context.items() if name in words) or kind


def _nearest_literal(error: ErrorDetails) -> str:
    expected = str(error.get("ctx", {}).get("expected", ""))
    known = [word.strip("'") for word in expected.replace(" or ", ", ").split(", ")]
    return nearest(str(error["input"]), known)


def _keys_at(root: type[BaseModel], path: Path, data: Any) -> list[str]:
    """The keys that the model at `path` knows."""
    model: type[BaseModel] | None = root
    value = data
    for part in path:
        value = value[part]
        if part == "faults":
            model = None
        elif model is None and isinstance(value, dict):
            model = KINDS.get(str(value.get("kind")))
        elif model is not None:
            model = _model_of(model, str(part), value)
    return list(model.model_fields) if model is not None else []


def _model_of(model: type[BaseModel], name: str, value: Any) -> type[BaseModel] | None:
    """The model of a field; of a union's, the one that shares most keys with the value."""
    candidates = _models_in(model.model_fields[name].annotation)
    if isinstance(value, dict) and "at_ms" in value and TimeTrigger in candidates:
        return TimeTrigger
    keys = set(value) if isinstance(value, dict) else set()
    return max(candidates, key=lambda item: len(keys & set(item.model_fields)), default=None)


def _models_in(annotation: Any) -> list[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return [annotation]
    return [model for part in get_args(annotation) for model in _models_in(part)]
