"""The JSON Schema of one line of history.jsonl, made from the facts themselves so that it cannot go stale unnoticed.

`services/schemas/history.schema.json` is what `schema_json` gives; a test compares them. To write it anew:

    python -m services.history_schema > services/schemas/history.schema.json
"""

from __future__ import annotations

import inspect
import json
import sys
from dataclasses import fields
from typing import Any, get_args, get_origin, get_type_hints

from services.messages import Array
from services.records import Fact

Json = dict[str, Any]

_INT: Json = {"type": "integer"}
_COUNT: Json = {"type": "integer", "minimum": 0}
_STRING: Json = {"type": "string"}
_NOT_FINITE: Json = {"enum": ["NaN", "Infinity", "-Infinity"]}
_FLOAT: Json = {"anyOf": [{"type": "number"}, _NOT_FINITE]}
_PLACE: Json = {
    "description": "offset in history.arrays in bytes, number of float64 elements, CRC-32 of the bytes",
    "type": "array",
    "prefixItems": [_COUNT, _COUNT, {"type": "string", "pattern": "^[0-9a-f]{8}$"}],
    "minItems": 3,
    "maxItems": 3,
}


def schema() -> Json:
    """The schema as a document."""
    kinds = {kind.__name__: _kind(kind) for kind in get_args(Fact)}
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "One line of a Gradstorm history",
        "type": "object",
        "properties": {
            "seq": {"description": "number of the line, from 1", "type": "integer", "minimum": 1},
            "at_ms": {"description": "the verifier's role clock when the record arrived", "type": "number"},
            "source": {"description": "the role that reported", **_STRING},
            "launch": {"description": "start of the reporting process, from 1", **_COUNT},
            "n": {"description": "number of the record within (source, launch), from 1", **_COUNT},
            "kind": {"enum": sorted(kinds)},
            "body": {"type": "object"},
            "arrays": {"type": "object", "additionalProperties": _PLACE},
            "crc": {"description": 'CRC-32 of the bytes before ,"crc"', "type": "string", "pattern": "^[0-9a-f]{8}$"},
        },
        "required": ["seq", "at_ms", "source", "launch", "n", "kind", "body", "arrays", "crc"],
        "additionalProperties": False,
        "allOf": [
            {
                "if": {"properties": {"kind": {"const": name}}},
                "then": {"properties": {"body": {"$ref": f"#/$defs/{name}"}}},
            }
            for name in sorted(kinds)
        ],
        "$defs": kinds,
    }


def schema_json() -> str:
    """The schema as the committed file has it."""
    return json.dumps(schema(), indent=1, sort_keys=True) + "\n"


def _kind(kind: type) -> Json:
    hints = get_type_hints(kind)
    said = inspect.cleandoc(kind.__doc__ or "")  # from Python 3.13 on the compiler takes the indent away
    properties = {item.name: _value(hints[item.name]) for item in fields(kind) if not _is_array(hints[item.name])}
    return {
        "description": "" if said.startswith(kind.__name__) else said,
        "type": "object",
        "properties": properties,
        "required": sorted(properties),
        "additionalProperties": False,
    }


def _is_array(hint: Any) -> bool:
    return Array in get_args(hint)


def _value(hint: Any) -> Json:
    plain = {int: _INT, float: _FLOAT, str: _STRING, bool: {"type": "boolean"}}
    if hint in plain:
        return plain[hint]
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        return {"type": "array", "items": _value(arguments[0])}
    if get_origin(hint) is tuple:
        items = [_value(argument) for argument in arguments]
        return {"type": "array", "prefixItems": items, "minItems": len(items), "maxItems": len(items)}
    if get_origin(hint) is dict:
        return {"type": "object", "additionalProperties": _value(arguments[1])}
    tagged = {"type": "object", "properties": {"float": _NOT_FINITE}, "required": ["float"]}
    return {"anyOf": [_STRING, {"type": "number"}, {"type": "boolean"}, tagged]}


if __name__ == "__main__":
    sys.stdout.write(schema_json())
