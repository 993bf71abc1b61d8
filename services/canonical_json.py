"""Canonical JSON, quickly: sorted keys, no spaces, ASCII, no NaN.

`json.JSONEncoder.encode` makes a new C encoder for every call, which costs more than encoding a record does. This one
makes it once. Where the interpreter has no C encoder the plain one is used; both write the same text.

`decode_object` reads what somebody else wrote. Duty of the caller: what is encoded does not contain itself.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from json import encoder
from typing import Any

_PLAIN = json.JSONEncoder(sort_keys=True, separators=(",", ":"), allow_nan=False)


def _made() -> Callable[[Any], str]:
    make = getattr(encoder, "c_make_encoder", None)
    if make is None:
        return _PLAIN.encode
    # markers (none: no search for cycles), default, strings, indent, separators, sort_keys, skipkeys, allow_nan
    pieces = make(None, _PLAIN.default, encoder.encode_basestring_ascii, None, ":", ",", True, False, False)
    return lambda value: "".join(pieces(value, 0))


encode_canonical: Callable[[Any], str] = _made()


def decode_object(text: str) -> dict[str, Any]:
    """The object in a text; NaN and infinity are no JSON. Raises ValueError, or RecursionError for one too deep."""
    found = json.loads(text, parse_constant=_no_constant)
    if type(found) is not dict:
        raise ValueError(f"{type(found).__name__} where an object must be")
    return found


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no number of JSON")
