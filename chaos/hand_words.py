"""What a person says to `gradstorm inject`, as a fault: "worker-1→worker-2 latency 100ms for 5s", "worker-2 kill",
"worker-5 add".

    hand_fault(("w1->w2", "latency", "100ms"), roles, spare)

A link is `a→b` (also `a->b`, `a>b`) for what a sends to b, `a↔b` (`a<->b`, `a|b`) for both directions. Roles may be
shortened: w2, c (coordinator), s (server), v (verifier). Without `for …` a fault lasts until it is healed. `spare` are
those who may be added.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Sequence
from typing import Any

from pydantic import TypeAdapter, ValidationError

from chaos.fault_kinds.base import SINGLE_ROLES, nearest
from chaos.faults import AnyFault, Fault
from services.events import COORDINATOR, SERVER, VERIFIER, worker_id
from training.errors import ConfigurationError

UNTIL_HEALED_MS = 1e9
NOW = {"at_ms": 0.0}
ADD = "add"
_ROLE_FAULTS = ("kill", "pause", ADD)
_SHORT = {"c": COORDINATOR, "s": SERVER, "v": VERIFIER}
_ARROWS = re.compile(r"\s*(<->|↔|\||->|→|>)\s*")
_BOTH_WAYS = ("<->", "↔", "|")
_NUMBER = re.compile(r"(\d+(?:\.\d+)?)\s*([A-Za-z/]*)")
_MS = {"ms": 1.0, "s": 1000.0, "": 1.0}
_KIB_PER_S = {"kib/s": 1.0, "kb/s": 1.0, "mib/s": 1024.0, "mb/s": 1024.0, "": 1.0}


def hand_fault(words: Sequence[str], roles: Collection[str], spare: Collection[str] = ()) -> AnyFault:
    """The fault that these words mean. Raises ConfigurationError with what would be understood."""
    if len(words) < 2:
        raise ConfigurationError("say whom and what, such as: worker-1→worker-2 latency 100ms, or: worker-2 kill")
    target, kind, *rest = words
    rest, lasts_ms = _lasting(rest)
    if _ARROWS.search(target):
        document = _of_link(target, kind, rest, lasts_ms, roles)
    elif kind == ADD:
        _nothing(kind, rest)
        document = {"kind": ADD, "target": _newcomer(target, roles, spare), "step": 1}  # whatever step it is by then
    else:
        document = _of_role(target, kind, rest, lasts_ms, roles)
    return _checked(document)


def _of_link(target: str, kind: str, rest: list[str], lasts_ms: float, roles: Collection[str]) -> dict[str, Any]:
    source, arrow, sink = _ARROWS.split(target, maxsplit=1)
    if kind not in _LINK_FAULTS:
        raise ConfigurationError(f"no fault {kind!r} of a link{nearest(kind, tuple(_LINK_FAULTS))}")
    pair = [_role(source, roles), _role(sink, roles)]
    if VERIFIER in pair:
        raise ConfigurationError("the links of the verifier are not disturbed: it is who judges")
    document: dict[str, Any] = {"kind": kind, "pairs": [pair], "one_way": arrow not in _BOTH_WAYS, "trigger": NOW}
    settings = _LINK_FAULTS[kind](rest)
    return document | settings | ({} if kind in ("reset", "flap") else {"for_ms": lasts_ms})


def _of_role(target: str, kind: str, rest: list[str], lasts_ms: float, roles: Collection[str]) -> dict[str, Any]:
    if kind not in _ROLE_FAULTS:
        of_link = f"; {kind} is a fault of a link, such as {target}→coordinator" if kind in _LINK_FAULTS else ""
        raise ConfigurationError(f"no fault {kind!r} of a role{of_link or nearest(kind, _ROLE_FAULTS)}")
    _nothing(kind, rest)
    document: dict[str, Any] = {"kind": kind, "target": _role(target, roles), "trigger": NOW}
    return document | ({"for_ms": lasts_ms} if kind == "pause" else {})


def _lasting(rest: list[str]) -> tuple[list[str], float]:
    """Cut `for 5s` off the end."""
    if len(rest) >= 2 and rest[-2] == "for":
        return rest[:-2], _amount(rest[-1], _MS)
    return rest, UNTIL_HEALED_MS


def _latency(rest: list[str]) -> dict[str, Any]:
    return {"delay_ms": _one("latency", rest, "100ms", _MS)}


def _jitter(rest: list[str]) -> dict[str, Any]:
    return {"jitter_ms": _one("jitter", rest, "50ms", _MS)}


def _bandwidth(rest: list[str]) -> dict[str, Any]:
    return {"kib_per_s": _one("bandwidth", rest, "64KiB/s", _KIB_PER_S)}


def _plain(kind: str) -> Callable[[list[str]], dict[str, Any]]:
    def settings(rest: list[str]) -> dict[str, Any]:
        _nothing(kind, rest)
        return {}

    return settings


def _flap(rest: list[str]) -> dict[str, Any]:
    _nothing("flap", rest)
    return {"cycles": 3, "down_ms": 300.0, "up_ms": 300.0}


_LINK_FAULTS: dict[str, Callable[[list[str]], dict[str, Any]]] = {
    "latency": _latency,
    "jitter": _jitter,
    "bandwidth": _bandwidth,
    "partition": _plain("partition"),
    "reset": _plain("reset"),
    "flap": _flap,
}


def _one(kind: str, rest: list[str], example: str, units: dict[str, float]) -> float:
    if len(rest) != 1:
        raise ConfigurationError(f"{kind} wants one amount, such as: {kind} {example}")
    return _amount(rest[0], units)


def _nothing(kind: str, rest: list[str]) -> None:
    if rest:
        raise ConfigurationError(f"{kind} takes no {' '.join(rest)!r}; `for 5s` may follow where it lasts")


def _amount(text: str, units: dict[str, float]) -> float:
    found = _NUMBER.fullmatch(text)
    if found is None or found[2].lower() not in units:
        known = ", ".join(unit for unit in units if unit)
        raise ConfigurationError(f"{text!r} is no amount; a number with one of: {known}")
    return float(found[1]) * units[found[2].lower()]


def _newcomer(word: str, roles: Collection[str], spare: Collection[str]) -> str:
    name = _full_name(word)
    if name in roles:
        raise ConfigurationError(f"{name} is in this testbed already; `gradstorm heal` starts again who is dead")
    free = sorted(set(spare) - set(roles), key=worker_id)
    if name not in free:
        raise ConfigurationError(f"cannot add {word!r}; what can be added here: {', '.join(free) or 'nobody'}")
    return name


def _full_name(word: str) -> str:
    return f"worker-{word[1:]}" if re.fullmatch(r"w\d+", word) else _SHORT.get(word, word)


def _role(word: str, roles: Collection[str]) -> str:
    name = _full_name(word)
    if name not in roles:
        kind = "role" if name in SINGLE_ROLES else "such role"
        raise ConfigurationError(f"no {kind} {word!r} in this testbed{nearest(name, sorted(roles))}")
    return name


def _checked(document: dict[str, Any]) -> AnyFault:
    adapter: TypeAdapter[AnyFault] = TypeAdapter(Fault)
    try:
        return adapter.validate_python(document)
    except ValidationError as error:
        found = [f"{item['loc'][-1]}: {item['msg']}" for item in error.errors(include_url=False)]
        raise ConfigurationError("; ".join(found)) from error
