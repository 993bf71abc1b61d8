"""The quick encoder writes what the standard library writes, and refuses what it refuses."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.canonical_json import encode_canonical

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


@given(VALUES)
def test_it_writes_the_same_text(value: Any) -> None:
    expected = json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False)
    assert encode_canonical(value) == expected


def test_tuples_are_lists() -> None:
    assert encode_canonical({"b": (1, (2,)), "a": -0.0}) == '{"a":-0.0,"b":[1,[2]]}'


@pytest.mark.parametrize("value", [float("nan"), [float("inf")], {"a": float("-inf")}])
def test_numbers_that_json_cannot_say_are_refused(value: Any) -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        encode_canonical(value)


def test_what_is_no_json_is_refused() -> None:
    with pytest.raises(TypeError, match="not JSON serializable"):
        encode_canonical({"a": object()})
