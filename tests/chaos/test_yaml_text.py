"""YAML with places, stricter than YAML 1.1."""

from __future__ import annotations

import pytest

from chaos.yaml_text import YamlError, load_marked


def test_data_and_lines() -> None:
    marked = load_marked("a: 1\nb:\n  - x\n  - {c: 2.5,\n     d: null}\n")
    assert marked.data == {"a": 1, "b": ["x", {"c": 2.5, "d": None}]}
    assert marked.line_of(("b", 1, "d")) == 5
    assert marked.line_of(("b", 1, "d", "deeper")) == 5
    assert marked.line_of(("nowhere",)) == 1


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("yes", "yes"),
        ("on", "on"),
        ("true", True),
        ("010", "010"),
        ("1:30", "1:30"),
        ("1_000", "1_000"),
        ("2026-01-01", "2026-01-01"),
        ("-5", -5),
        ("1e-3", 0.001),
        ("1.", 1.0),
        (".5", 0.5),
        ("~", None),
        ("", None),
        ("'5'", "5"),
        ("0x1f", "0x1f"),
    ],
)
def test_scalars_are_those_of_yaml_1_2(text: str, value: object) -> None:
    loaded = load_marked(f"a: {text}\n").data["a"]
    assert loaded == value
    assert type(loaded) is type(value)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a: 1\na: 2\n", "line 2, column 1: the key 'a' stands here again; first in line 1"),
        ("a: &x 1\nb: *x\n", "line 1, column 4: anchors and aliases ('x') are not taken; write it out"),
        ("a: !!python/name:os.system\n", "line 1, column 4: the tag !!python/name:os.system is refused"),
        ("a: !mine 3\n", "line 1, column 4: the tag !mine is refused"),
        ("? [a]\n: 1\n", "line 1, column 3: a key must be a word"),
        ("a: 1\n---\nb: 2\n", "line 2, column 1: no valid YAML: but found another document"),
        ("\ta: 1\n", "line 1, column 1: no valid YAML: found character '\\t'"),
        ("a: \x00\n", "line 1, column 1: no valid YAML: unacceptable character"),
        ("a: !!int x\n", "line 1, column 4: 'x' is no int"),
    ],
)
def test_refusals(text: str, message: str) -> None:
    with pytest.raises(YamlError) as caught:
        load_marked(text)
    assert str(caught.value).startswith(message)


def test_a_merge_key_is_a_key_like_any_other() -> None:
    assert load_marked("<<: {a: 1}\n").data == {"<<": {"a": 1}}
