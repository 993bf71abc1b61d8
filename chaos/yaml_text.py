"""YAML with places: plain data, and the line of every key, so that an error can name where it is.

Stricter than YAML 1.1: a repeated key, a tag, an anchor or an alias is refused (nothing in a file decides which code
runs, and none of them is needed), and `yes`, `on`, `010` or `1:30` are words, not booleans or numbers.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import yaml

Path = tuple[str | int, ...]

_TEXT_MAX = 1_000_000  # characters; a scenario has a few thousand


class YamlError(Exception):
    """The text is no YAML that we take. `line` and `column` count from 1."""

    def __init__(self, line: int, column: int, text: str) -> None:
        super().__init__(f"line {line}, column {column}: {text}")
        self.line, self.column, self.text = line, column, text


@dataclass(frozen=True, slots=True)
class MarkedYaml:
    """`data` is made of dict, list, str, int, float, bool and None; `lines` gives the line of each path in it."""

    data: Any
    lines: dict[Path, int] = field(repr=False)

    def line_of(self, path: Path) -> int:
        """The line of the path, or of the nearest thing around it that the text has."""
        for length in range(len(path), -1, -1):
            if path[:length] in self.lines:
                return self.lines[path[:length]]
        return 1


class _Loader(yaml.SafeLoader):
    """The scalars of YAML 1.2's core schema."""

    yaml_implicit_resolvers: dict[str, list[tuple[str, re.Pattern[str]]]] = {}  # noqa: RUF012 - replaces PyYAML's table


_Loader.add_implicit_resolver("tag:yaml.org,2002:bool", re.compile(r"^(?:true|false)$"), list("tf"))
_Loader.add_implicit_resolver("tag:yaml.org,2002:null", re.compile(r"^(?:null|~|)$"), ["n", "~", ""])
_Loader.add_implicit_resolver("tag:yaml.org,2002:int", re.compile(r"^[-+]?(?:0|[1-9][0-9]*)$"), list("-+0123456789"))
_Loader.add_implicit_resolver(
    "tag:yaml.org,2002:float",
    re.compile(r"^[-+]?(?:[0-9]+\.[0-9]*(?:[eE][-+]?[0-9]+)?|\.[0-9]+(?:[eE][-+]?[0-9]+)?|[0-9]+[eE][-+]?[0-9]+)$"),
    list("-+.0123456789"),
)

_CONVERT: dict[str, Callable[[str], Any]] = {
    "tag:yaml.org,2002:null": lambda _: None,
    "tag:yaml.org,2002:bool": lambda text: text == "true",
    "tag:yaml.org,2002:int": int,
    "tag:yaml.org,2002:float": float,
    "tag:yaml.org,2002:str": str,
}


def load_marked(text: str) -> MarkedYaml:
    """Parse one document. Raises YamlError with line and column."""
    if len(text) > _TEXT_MAX:
        raise YamlError(1, 1, f"{len(text)} characters; a scenario has at most {_TEXT_MAX}")
    try:
        _refuse_references(text)
        node = yaml.compose(text, Loader=_Loader)
        lines: dict[Path, int] = {}
        data = None if node is None else _plain(node, (), lines)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        line, column = (mark.line + 1, mark.column + 1) if mark else (1, 1)
        context = f" ({error.context})" if error.context else ""
        raise YamlError(line, column, f"no valid YAML: {error.problem}{context}") from error
    except yaml.YAMLError as error:
        raise YamlError(1, 1, f"no valid YAML: {error}") from error
    except RecursionError as error:
        raise YamlError(1, 1, "nested too deeply") from error
    return MarkedYaml(data, lines)


def _refuse_references(text: str) -> None:
    for event in yaml.parse(text, Loader=_Loader):
        anchor = getattr(event, "anchor", None)
        if anchor is not None:
            raise _error(event.start_mark, f"anchors and aliases ({anchor!r}) are not taken; write it out")


def _plain(node: yaml.Node, path: Path, lines: dict[Path, int]) -> Any:
    lines.setdefault(path, node.start_mark.line + 1)
    if isinstance(node, yaml.MappingNode) and node.tag == "tag:yaml.org,2002:map":
        return _mapping(node, path, lines)
    if isinstance(node, yaml.SequenceNode) and node.tag == "tag:yaml.org,2002:seq":
        return [_plain(item, (*path, at), lines) for at, item in enumerate(node.value)]
    if isinstance(node, yaml.ScalarNode) and node.tag in _CONVERT:
        try:
            return _CONVERT[node.tag](node.value)
        except ValueError as error:
            raise _error(node.start_mark, f"{node.value[:40]!r} is no {node.tag.rpartition(':')[2]}") from error
    tag = node.tag.replace("tag:yaml.org,2002:", "!!")
    raise _error(node.start_mark, f"the tag {tag} is refused: a scenario is plain data")


def _mapping(node: yaml.MappingNode, path: Path, lines: dict[Path, int]) -> dict[str, Any]:
    result: dict[str, Any] = {}
    for key_node, value_node in node.value:
        if not isinstance(key_node, yaml.ScalarNode):
            raise _error(key_node.start_mark, "a key must be a word")
        key = str(key_node.value)
        here = (*path, key)
        if key in result:
            raise _error(key_node.start_mark, f"the key {key!r} stands here again; first in line {lines[here]}")
        lines[here] = key_node.start_mark.line + 1
        result[key] = _plain(value_node, here, lines)
    return result


def _error(mark: Any, text: str) -> YamlError:
    return YamlError(mark.line + 1, mark.column + 1, text)
