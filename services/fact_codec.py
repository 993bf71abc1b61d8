"""Facts as they travel and as the history stores them: kind, canonical JSON body, arrays beside it.

The kind is the class name. The body has every field but the arrays, keys sorted, no spaces, ASCII. A float that JSON
cannot say is a string ("NaN", "Infinity", "-Infinity"), and {"float": …} where a string would be ambiguous. Each body
has exactly one spelling, so equal facts are equal bytes and a reader can refuse every other spelling.

Duty of the caller: fields hold what their annotations say; a numpy integer in an int field is our own bug (TypeError).
"""

from __future__ import annotations

import json
import math
import types
from collections.abc import Callable, Iterable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, Union, get_args, get_origin, get_type_hints

import numpy as np

from services.canonical_json import encode_canonical
from services.messages import Array, Numbered
from services.records import Fact
from services.wire_error import WireError

INT_BOUND = 2**63
_decode = json.JSONDecoder().decode
_NOT_FINITE = {"NaN": math.nan, "Infinity": math.inf, "-Infinity": -math.inf}

Restore = Callable[[Any], Any]  # JSON value -> field value; raises _Mismatch


class _Mismatch(Exception):
    """A JSON value is not what the field's annotation says."""


@dataclass(frozen=True, slots=True)
class _Plan:
    """How one fact class is taken apart and put together, worked out once."""

    make: Callable[..., Fact]
    names: tuple[str, ...]
    values: Callable[[Fact], tuple[Any, ...]]
    floats: tuple[str, ...]
    restores: tuple[tuple[str, Restore], ...]
    arrays: tuple[str, ...]


def fact_to_numbered(fact: Fact, sequence: int) -> Numbered:
    """The fact as a record with this number. Raises TypeError or AssertionError on a field of the wrong type."""
    plan = _PLAN_OF_CLASS[type(fact)]
    body_json = _body(fact, plan)
    if not plan.arrays:
        return Numbered(sequence, type(fact).__name__, body_json)
    arrays: list[tuple[str, Array]] = []
    for name in plan.arrays:
        array = getattr(fact, name)
        if array is not None:
            assert array.dtype == np.float64, f"{name}: {array.dtype}"
            assert array.ndim == 1, f"{name}: {array.shape}"
            arrays.append((name, array))
    return Numbered(sequence, type(fact).__name__, body_json, tuple(arrays))


def fact_from_numbered(numbered: Numbered, source: str = "") -> Fact:
    """Inverse of `fact_to_numbered`; `source` is only named in errors. Raises WireError and nothing else."""
    plan = _PLAN_OF_KIND.get(numbered.kind)
    if plan is None:
        raise WireError(f"record {numbered.sequence}: unknown kind {numbered.kind[:80]!r}", source)
    try:
        values = _restored(numbered.body_json, plan)
        values.update(_arrays(numbered, plan))
        fact = plan.make(**values)
        if _body(fact, plan) != numbered.body_json:
            raise _Mismatch("body is not in canonical form")
    except _Mismatch as error:
        raise WireError(f"record {numbered.sequence} ({numbered.kind}): {error}", source) from None
    return fact


# ---------------------------------------------------------------- out


def _body(fact: Fact, plan: _Plan) -> str:
    body = dict(zip(plan.names, plan.values(fact), strict=True))
    for name in plan.floats:
        body[name] = float(body[name])
    try:
        return encode_canonical(body)
    except ValueError:  # a float that JSON cannot say
        sayable = {name: _sayable(value, "" if name in plan.floats else "float") for name, value in body.items()}
        return encode_canonical(sayable)


def _sayable(value: Any, tag: str) -> Any:
    if isinstance(value, float) and not math.isfinite(value):
        name = "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
        return {tag: name} if tag else name
    if isinstance(value, dict):
        return {key: _sayable(item, tag) for key, item in value.items()}
    return value


# ---------------------------------------------------------------- in


def _restored(body_json: str, plan: _Plan) -> dict[str, Any]:
    try:
        body = _decode(body_json)
    except (ValueError, RecursionError):  # also a number with too many digits
        raise _Mismatch("body is not JSON") from None
    if type(body) is not dict or len(body) != len(plan.restores):
        raise _Mismatch("body does not have exactly the fields of its kind")
    values: dict[str, Any] = {}
    for name, restore in plan.restores:
        if name not in body:
            raise _Mismatch(f"field {name} is missing")
        try:
            values[name] = restore(body[name])
        except _Mismatch as error:
            raise _Mismatch(f"field {name}: {error}") from None
    return values


def _arrays(numbered: Numbered, plan: _Plan) -> dict[str, Array]:
    found: dict[str, Array] = {}
    for name, array in numbered.arrays:
        if name not in plan.arrays or name in found:
            raise _Mismatch(f"array {name[:80]!r} is unknown or there twice")
        if array.dtype != np.float64 or array.ndim != 1:
            raise _Mismatch(f"array {name}: {array.dtype}, {array.ndim} dimensions; it must be float64, one")
        found[name] = array
    if tuple(found) != tuple(name for name in plan.arrays if name in found):
        raise _Mismatch("arrays are out of order")
    return found


def _restore_scalar(kind: type) -> Restore:
    def restore(value: Any) -> Any:
        if type(value) is not kind:
            raise _Mismatch(f"{type(value).__name__} instead of {kind.__name__}")
        return value

    return restore


def _restore_int(value: Any) -> int:
    if type(value) is not int:
        raise _Mismatch(f"{type(value).__name__} instead of int")
    if not -INT_BOUND <= value < INT_BOUND:
        raise _Mismatch("int beyond 64 bits")
    return value


def _restore_float(value: Any) -> float:
    if type(value) is float:
        return value
    if type(value) is str and value in _NOT_FINITE:
        return _NOT_FINITE[value]
    raise _Mismatch(f"{type(value).__name__} instead of float")


def _restore_union(value: Any) -> str | int | float:
    """A value of `dict[str, str | int | float]`."""
    if type(value) is int:
        return _restore_int(value)
    if type(value) in (str, float, bool):
        return value  # type: ignore[no-any-return]
    if type(value) is dict and len(value) == 1 and type(value.get("float")) is str and value["float"] in _NOT_FINITE:
        return _NOT_FINITE[value["float"]]
    raise _Mismatch(f"{type(value).__name__} instead of str, int or float")


def _restore_ints(value: Any) -> tuple[int, ...]:
    """`tuple[int, ...]`, which may hold many thousand sample ids."""
    if type(value) is not list or (value and set(map(type, value)) != {int}):
        raise _Mismatch("not a list of ints")
    if value and (min(value) < -INT_BOUND or max(value) >= INT_BOUND):
        raise _Mismatch("int beyond 64 bits")
    return tuple(value)


def _restore_many(item: Restore) -> Restore:
    def restore(value: Any) -> Any:
        if type(value) is not list:
            raise _Mismatch(f"{type(value).__name__} instead of list")
        return tuple(item(entry) for entry in value)

    return restore


def _restore_row(items: tuple[Restore, ...]) -> Restore:
    def restore(value: Any) -> Any:
        if type(value) is not list or len(value) != len(items):
            raise _Mismatch(f"not a list of {len(items)}")
        return tuple(item(entry) for item, entry in zip(items, value, strict=True))

    return restore


def _restore_map(item: Restore) -> Restore:
    def restore(value: Any) -> Any:
        if type(value) is not dict:
            raise _Mismatch(f"{type(value).__name__} instead of object")
        return {key: item(entry) for key, entry in value.items()}

    return restore


# ---------------------------------------------------------------- plans


def _restore_of(hint: Any) -> Restore:
    if hint is int:
        return _restore_int
    if hint is float:
        return _restore_float
    if hint in (str, bool):
        return _restore_scalar(hint)
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return _restore_ints if arguments[0] is int else _restore_many(_restore_of(arguments[0]))
    if get_origin(hint) is tuple:
        return _restore_row(tuple(_restore_of(argument) for argument in arguments))
    if get_origin(hint) is dict and arguments[0] is str:
        return _restore_map(_restore_of(arguments[1]))
    if set(arguments) == {str, int, float}:
        return _restore_union
    raise TypeError(f"no plan for a field of type {hint}")


def _is_array(hint: Any) -> bool:
    return get_origin(hint) in (Union, types.UnionType) and Array in get_args(hint)


def _values_of(names: tuple[str, ...]) -> Callable[[Fact], tuple[Any, ...]]:
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda fact: (getter(fact),)


def _plan_of(kind: Callable[..., Fact], names_and_hints: Iterable[tuple[str, Any]]) -> _Plan:
    hints = dict(names_and_hints)
    arrays = tuple(name for name, hint in hints.items() if _is_array(hint))
    names = tuple(sorted(name for name in hints if name not in arrays))
    return _Plan(
        make=kind,
        names=names,
        values=_values_of(names),
        floats=tuple(name for name in names if hints[name] is float),
        restores=tuple((name, _restore_of(hints[name])) for name in names),
        arrays=arrays,
    )


def _plans() -> dict[type, _Plan]:
    plans: dict[type, _Plan] = {}
    for kind in get_args(Fact):
        hints = get_type_hints(kind)
        plans[kind] = _plan_of(kind, [(item.name, hints[item.name]) for item in fields(kind)])
    return plans


_PLAN_OF_CLASS = _plans()
_PLAN_OF_KIND = {kind.__name__: plan for kind, plan in _PLAN_OF_CLASS.items()}
FACT_KINDS = tuple(sorted(_PLAN_OF_KIND))
