"""From a history line to a fact, for the judge: quick, and without anything of production's codec.

What a line says was checked when it was received and is covered by its CRC. So this reader only turns JSON's lists into
tuples; a body that does not have the fields of its kind raises `UnreadableFact`, and a wrong type surfaces where it is
used, in a checker that then says "unknown".
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, get_args, get_origin, get_type_hints

from services.messages import Array
from services.records import Fact

Convert = Callable[[Any], Any]
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}
_scan = json.JSONDecoder().raw_decode  # `decode` without its search for blanks, which bodies do not have


class UnreadableFact(Exception):
    """A line's kind or body is not that of a fact."""


@dataclass(frozen=True, slots=True)
class _Kind:
    make: Callable[..., Fact]
    converts: tuple[tuple[str, Convert], ...]


def read_fact(kind: str, body_json: str, arrays: Mapping[str, Array]) -> Fact:
    """The fact that a line carries. Raises UnreadableFact and nothing else."""
    plan = _KINDS.get(kind)
    if plan is None:
        raise UnreadableFact(f"unknown kind {kind[:80]!r}")
    try:
        body, end = _scan(body_json)
        if end != len(body_json):
            raise ValueError("characters after the body")
        for name, convert in plan.converts:
            body[name] = convert(body[name])
        return plan.make(**body, **arrays) if arrays else plan.make(**body)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError) as error:
        raise UnreadableFact(f"{kind}: its body does not fit ({error!r})") from None


def _float(value: Any) -> float:
    return _NOT_FINITE[value] if type(value) is str else float(value)


def _rows(value: Any) -> tuple[Any, ...]:
    return tuple(map(tuple, value))


def _lists(value: Any) -> dict[str, Any]:
    return {key: tuple(item) for key, item in value.items()}


def _union(value: Any) -> Any:
    """{"float": "NaN"} where a plain string would be ambiguous; see `services.fact_codec`."""
    return {key: _float(item["float"]) if isinstance(item, dict) else item for key, item in value.items()}


def _convert_of(hint: Any) -> Convert | None:
    if hint is float:
        return _float
    if get_origin(hint) is tuple:
        return _rows if get_origin(get_args(hint)[0]) is tuple else tuple
    if get_origin(hint) is dict:
        value = get_args(hint)[1]
        return _lists if get_origin(value) is tuple else _union if float in get_args(value) else None
    return None


def _kinds() -> dict[str, _Kind]:
    kinds: dict[str, _Kind] = {}
    for kind in get_args(Fact):
        hints = get_type_hints(kind)
        converts = [(item.name, _convert_of(hints[item.name])) for item in fields(kind)]
        kinds[kind.__name__] = _Kind(kind, tuple((name, convert) for name, convert in converts if convert is not None))
    return kinds


_KINDS = _kinds()
