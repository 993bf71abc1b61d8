"""From a history line to a fact, for the judge: quick, and without anything of production's codec.

A body must have exactly the fields of its kind, each of the type that the fact's annotation says; whatever else stands
there raises `UnreadableFact`. So a checker meets senseless values, but no senseless types.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from operator import itemgetter
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
    """How one fact class is read, worked out once."""

    make: Callable[..., Fact]
    names: frozenset[str]  # of all fields but the arrays
    arrays: frozenset[str]
    plain: Callable[[Mapping[str, Any]], tuple[Any, ...]]  # the values of those that JSON says as they are
    types: tuple[type, ...]  # … and what they must be
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
        if body.keys() != plan.names or (arrays and not arrays.keys() <= plan.arrays):
            raise ValueError("not exactly the fields of its kind")
        if tuple(map(type, plan.plain(body))) != plan.types:
            raise TypeError("a field of another type")
        for name, convert in plan.converts:
            body[name] = convert(body[name])
        return plan.make(**body, **arrays) if arrays else plan.make(**body)
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError) as error:
        raise UnreadableFact(f"{kind}: its body does not fit ({error!r})") from None


# ---------------------------------------------------------------- from JSON's values; all raise TypeError or KeyError


def _float(value: Any) -> float:
    if type(value) is str:
        return _NOT_FINITE[value]
    if type(value) not in (int, float):
        raise TypeError(f"{type(value).__name__} where a float must be")
    return float(value)


def _union(value: Any) -> Any:
    """{"float": "NaN"} where a plain string would be ambiguous; see `services.fact_codec`."""
    if type(value) is dict and value.keys() == {"float"}:
        return _NOT_FINITE[value["float"]]
    if type(value) not in (str, int, float, bool):
        raise TypeError(f"{type(value).__name__} where a text or a number must be")
    return value


def _plain(kind: type) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not kind:
            raise TypeError(f"{type(value).__name__} where {kind.__name__} must be")
        return value

    return convert


def _all_of(kind: type) -> Convert:
    """A list of one plain type, perhaps of many thousand sample ids."""

    def convert(value: Any) -> Any:
        if type(value) is not list or not set(map(type, value)) <= {kind}:
            raise TypeError(f"no list of {kind.__name__}")
        return tuple(value)

    return convert


def _row_of(kinds: tuple[type, ...]) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not list or tuple(map(type, value)) != kinds:
            raise TypeError(f"no row of {len(kinds)}")
        return tuple(value)

    return convert


def _each(item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not list:
            raise TypeError("no list")
        return tuple(map(item, value))

    return convert


def _map_of(item: Convert) -> Convert:
    def convert(value: Any) -> Any:
        if type(value) is not dict:
            raise TypeError("no object")
        return {key: item(entry) for key, entry in value.items()}

    return convert


# ---------------------------------------------------------------- plans


def _convert_of(hint: Any) -> Convert:
    arguments = get_args(hint)
    if hint is float:
        return _float
    if hint in (int, str, bool):
        return _plain(hint)
    if get_origin(hint) is dict:
        return _map_of(_convert_of(arguments[1]))
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return _all_of(arguments[0]) if arguments[0] in (int, str) else _each(_convert_of(arguments[0]))
    if get_origin(hint) is tuple:
        return _row_of(arguments)
    assert set(arguments) == {str, int, float}, hint
    return _union


def _kind_of(kind: Callable[..., Fact]) -> _Kind:
    hints = get_type_hints(kind)
    names = [item.name for item in fields(kind)]  # type: ignore[arg-type]
    arrays = [name for name in names if Array in get_args(hints[name])]
    plain = [name for name in names if hints[name] in (int, str, bool)]
    rest = [name for name in names if name not in arrays and name not in plain]
    return _Kind(
        make=kind,
        names=frozenset(plain + rest),
        arrays=frozenset(arrays),
        plain=_getter(plain),
        types=tuple(hints[name] for name in plain),
        converts=tuple((name, _convert_of(hints[name])) for name in rest),
    )


def _getter(names: list[str]) -> Callable[[Mapping[str, Any]], tuple[Any, ...]]:
    if len(names) > 1:
        return itemgetter(*names)
    return lambda body: tuple(body[name] for name in names)


_KINDS = {kind.__name__: _kind_of(kind) for kind in get_args(Fact)}
