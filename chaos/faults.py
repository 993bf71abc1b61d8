"""Faults as data: the list of all kinds, their names in a run, and which engine can do which.

A fault is one thing that goes wrong, with the point at which it begins and, where it can be undone, the point at
which it is. `chaos.fault_kinds` has one file per family; a new kind is added there and to `Fault` here, and its way of
acting to `chaos.acts`.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated, get_args

from pydantic import Field

from chaos.fault_kinds.base import FaultBase
from chaos.fault_kinds.connections import Down, Limit, Slicer, SlowClose, Timeout
from chaos.fault_kinds.disks import CorruptCheckpoint
from chaos.fault_kinds.links import (
    Bandwidth,
    CorruptPayload,
    Disconnect,
    Drop,
    Duplicate,
    Flap,
    Jitter,
    Latency,
    Partition,
    Reorder,
    Reset,
)
from chaos.fault_kinds.roles import AddWorker, Kill, Pause, PowerCut, Stop, Straggle

AnyFault = (
    Kill | PowerCut | Pause | Straggle | AddWorker | CorruptCheckpoint | Latency | Jitter | Bandwidth | Drop
    | Duplicate | Reorder | CorruptPayload | Partition | Reset | Flap | Disconnect | Down | Timeout | Limit | Slicer
    | SlowClose | Stop
)  # fmt: skip
Fault = Annotated[AnyFault, Field(discriminator="kind")]


def kind_of(model: type[FaultBase]) -> str:
    """The word for a kind of fault, as a scenario writes it."""
    (word,) = get_args(model.model_fields["kind"].annotation)
    return str(word)


KINDS: dict[str, type[FaultBase]] = {kind_of(model): model for model in get_args(AnyFault)}


def fault_names(faults: Sequence[AnyFault]) -> tuple[str, ...]:
    """A name for each fault, unique within the run and the same in every engine: "1-kill-worker-2"."""
    return tuple(_name(number, fault) for number, fault in enumerate(faults, start=1))


def _name(number: int, fault: AnyFault) -> str:
    plain = all(letter.isalnum() or letter == "-" for letter in fault.label)
    return f"{number}-{fault.kind}-{fault.label}" if plain else f"{number}-{fault.kind}"


def cannot(fault: AnyFault, engine: str, *, toxiproxy: bool = False) -> str:
    """Why `engine` cannot do this fault, or "" when it can."""
    if engine in fault.able or (toxiproxy and engine in fault.able_with_toxiproxy):
        return ""
    if engine in fault.able_with_toxiproxy:
        others = sorted((fault.able | fault.able_with_toxiproxy) - {engine, "lan"}, reverse=True)
        return f"engine {engine} can do {fault.kind} only through Toxiproxy; use engine {' or '.join(others)}"
    able = sorted(fault.able or fault.able_with_toxiproxy - {"lan"})
    return f"engine {engine} cannot do {fault.kind}; use engine {' or '.join(able)}"


def describe_kinds() -> dict[str, str]:
    """Every kind and the first line of what it is."""
    return {word: (model.__doc__ or "").strip().splitlines()[0] for word, model in KINDS.items()}
