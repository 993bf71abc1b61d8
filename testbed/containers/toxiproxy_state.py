"""What Toxiproxy shows of itself, read from its JSON and checked: proxies and the toxics on them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from testbed.containers.toxics import Attributes, Direction, Toxic
from testbed.containers.toxiproxy_errors import ToxiproxyMismatch


@dataclass(frozen=True, slots=True)
class ToxicState:
    """One toxic as it stands in one direction of one proxy."""

    name: str
    kind: str
    direction: Direction
    toxicity: float  # share of the connections that it acts on, drawn by Toxiproxy per connection
    attributes: Attributes

    def is_as_asked(self, other: ToxicState) -> bool:
        """Whether they are the same but for the rounding of the toxicity (Toxiproxy keeps 32 bits)."""
        same = (self.name, self.kind, self.direction) == (other.name, other.kind, other.direction)
        close = math.isclose(self.toxicity, other.toxicity, rel_tol=1e-6)
        return same and close and self.attributes == other.attributes


@dataclass(frozen=True, slots=True)
class ProxyState:
    """One proxy. `listen` is the address that it really has, also when port 0 was asked for."""

    name: str
    listen: str
    upstream: str
    enabled: bool
    toxics: tuple[ToxicState, ...]

    @property
    def healthy(self) -> bool:
        """Up, and nothing on it."""
        return self.enabled and not self.toxics

    @property
    def port(self) -> int:
        return int(self.listen.rpartition(":")[2])

    def toxic(self, name: str) -> ToxicState | None:
        return next((toxic for toxic in self.toxics if toxic.name == name), None)


def asked_for(name: str, direction: Direction, toxic: Toxic, toxicity: float) -> ToxicState:
    """The state that a toxic is to have."""
    return ToxicState(name, toxic.kind, direction, toxicity, toxic.attributes)


def read_proxy(document: Any) -> ProxyState:
    """A proxy from Toxiproxy's JSON. Raises ToxiproxyMismatch for anything else."""
    try:
        return ProxyState(
            name=str(document["name"]),
            listen=str(document["listen"]),
            upstream=str(document["upstream"]),
            enabled=bool(document["enabled"]),
            toxics=tuple(_read_toxic(toxic) for toxic in document["toxics"]),
        )
    except (KeyError, TypeError, ValueError) as error:
        raise ToxiproxyMismatch(f"this is no proxy of Toxiproxy's: {str(document)[:200]} ({error!r})") from error


def _read_toxic(document: Any) -> ToxicState:
    return ToxicState(
        name=str(document["name"]),
        kind=str(document["type"]),
        direction=document["stream"],
        toxicity=float(document["toxicity"]),
        attributes={str(key): int(value) for key, value in document["attributes"].items()},
    )
