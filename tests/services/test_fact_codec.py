"""Facts survive the way to the verifier and into the history, and nothing else is taken for one."""

from __future__ import annotations

import json
import math
from dataclasses import fields, is_dataclass, replace
from typing import Any, get_args, get_type_hints

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from services.fact_codec import FACT_KINDS, fact_from_numbered, fact_to_numbered
from services.messages import Array, Numbered
from services.records import Committed, Contributed, Fact, FaultActed, Opened, Summed
from services.wire_error import WireError

INTS = st.integers(-(2**63), 2**63 - 1)
VALUES: dict[Any, st.SearchStrategy[Any]] = {
    int: INTS,
    float: st.floats(),
    str: st.text(),
    bool: st.booleans(),
    Array | None: st.none() | hnp.arrays(np.float64, st.integers(0, 5)),
}


def value_of(hint: Any) -> st.SearchStrategy[Any]:
    if hint in VALUES:
        return VALUES[hint]
    arguments = get_args(hint)
    if set(arguments) == {str, int, float}:
        return st.text() | INTS | st.floats()
    if hint.__origin__ is dict:
        return st.dictionaries(st.text(), value_of(arguments[1]), max_size=4)
    if arguments[-1] is Ellipsis:
        return st.lists(value_of(arguments[0]), max_size=5).map(tuple)
    return st.tuples(*map(value_of, arguments))


def fact_of(kind: Any) -> st.SearchStrategy[Fact]:
    hints = get_type_hints(kind)
    return st.builds(kind, **{item.name: value_of(hints[item.name]) for item in fields(kind)})


FACTS = st.one_of([fact_of(kind) for kind in get_args(Fact)])


def same(left: Any, right: Any) -> bool:
    """Equality that sees types, array bits and NaN."""
    if type(left) is not type(right):
        return False
    if is_dataclass(left):
        return all(same(getattr(left, item.name), getattr(right, item.name)) for item in fields(left))
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.tobytes() == right.tobytes())
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    if isinstance(left, dict):
        return set(left) == set(right) and all(same(left[key], right[key]) for key in left)
    if isinstance(left, float) and math.isnan(left):
        return math.isnan(right)
    return bool(left == right) and str(left) == str(right)


@given(FACTS, st.integers(0, 2**63 - 1))
def test_round_trip_restores_every_kind(fact: Fact, sequence: int) -> None:
    numbered = fact_to_numbered(fact, sequence)
    assert numbered.sequence == sequence
    assert same(fact_from_numbered(numbered), fact)


@given(FACTS)
def test_the_body_is_canonical_ascii_json_without_the_arrays(fact: Fact) -> None:
    numbered = fact_to_numbered(fact, 1)
    body = json.loads(numbered.body_json, parse_constant=pytest.fail)
    assert numbered.body_json == json.dumps(body, sort_keys=True, separators=(",", ":"))
    assert not set(body) & {name for name, _ in numbered.arrays}


def test_every_fact_class_has_a_kind() -> None:
    assert set(FACT_KINDS) == {kind.__name__ for kind in get_args(Fact)}


def test_deals_keep_their_tuples() -> None:
    fact = Opened(3, 2, 1, {"10": (4, 5), "2": ()}, 7)
    assert fact_from_numbered(fact_to_numbered(fact, 9)) == fact


def test_an_int_in_a_float_field_is_told_as_a_float() -> None:
    fact = Contributed(1, 1, 1, 1, (), "", 0)
    assert '"loss":0.0' in fact_to_numbered(fact, 1).body_json
    assert fact_from_numbered(fact_to_numbered(fact, 1)) == fact


def test_a_string_that_looks_like_nan_stays_a_string() -> None:
    fact = FaultActed("1", {"text": "NaN", "number": math.inf})
    assert fact_from_numbered(fact_to_numbered(fact, 1)) == fact


GOOD = fact_to_numbered(Summed("worker-1", 3, 0, 1, (1, 2)), 7)
LOSS = fact_to_numbered(Contributed(1, 1, 1, 1, (), "", 0.5, np.zeros(2)), 8)
BAD: dict[str, Numbered] = {
    "kind": replace(GOOD, kind="Print"),
    "no JSON": replace(GOOD, body_json="{"),
    "deep": replace(GOOD, body_json="[" * 100_000),
    "long number": replace(GOOD, body_json="9" * 10_000),
    "not an object": replace(GOOD, body_json="[]"),
    "missing": replace(GOOD, body_json=GOOD.body_json.replace('"attempt":0,', "")),
    "more": replace(GOOD, body_json=GOOD.body_json.replace("{", '{"a":1,')),
    "another name": replace(GOOD, body_json=GOOD.body_json.replace("attempt", "attempu")),
    "twice": replace(GOOD, body_json=GOOD.body_json.replace("{", '{"attempt":9,')),
    "spaces": replace(GOOD, body_json=GOOD.body_json.replace(",", ", ")),
    "bool for int": replace(GOOD, body_json=GOOD.body_json.replace('"step":3', '"step":true')),
    "float for int": replace(GOOD, body_json=GOOD.body_json.replace('"step":3', '"step":3.0')),
    "huge int": replace(GOOD, body_json=GOOD.body_json.replace('"step":3', f'"step":{2**63}')),
    "string in list": replace(GOOD, body_json=GOOD.body_json.replace("[1,2]", '[1,"2"]')),
    "int for float": replace(LOSS, body_json=LOSS.body_json.replace("0.5", "1")),
    "JSON's NaN": replace(LOSS, body_json=LOSS.body_json.replace("0.5", "NaN")),
    "array unknown": replace(GOOD, arrays=(("value", np.zeros(1)),)),
    "array twice": replace(LOSS, arrays=LOSS.arrays * 2),
    "array float32": replace(LOSS, arrays=(("gradient", np.zeros(1, np.float32)),)),
    "array 2-d": replace(LOSS, arrays=(("gradient", np.zeros((1, 1))),)),
}


@pytest.mark.parametrize("name", BAD)
def test_anything_else_is_refused_by_name_of_the_sender(name: str) -> None:
    with pytest.raises(WireError, match=r"^worker-9: record \d+") as caught:
        fact_from_numbered(BAD[name], "worker-9")
    assert caught.value.source == "worker-9"


@given(
    st.sampled_from(FACT_KINDS),
    st.text()
    | st.recursive(
        st.none() | st.booleans() | INTS | st.floats() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    ).map(json.dumps),
)
def test_arbitrary_bodies_raise_nothing_but_wire_errors(kind: str, body: str) -> None:
    try:
        fact = fact_from_numbered(Numbered(1, kind, body))
    except WireError:
        return
    assert fact_to_numbered(fact, 1).body_json == body


def test_a_numpy_integer_is_our_own_bug() -> None:
    fact = Committed(np.int64(1), 1, 0, 0, (), (), (), 0, "", 0.0)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        fact_to_numbered(fact, 1)
