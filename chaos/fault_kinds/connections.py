"""Faults of connections that only a proxy in between can do: the simulator has messages, and no TCP.

Each acts on the bytes of whole connections. They change no result: who is cut off for a while is waited for.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field

from chaos.fault_kinds.base import NONE, Milliseconds
from chaos.fault_kinds.links import LastingLinkFault, Settings

Bytes = Annotated[int, Field(ge=1, le=2**31 - 1)]


class ProxyFault(LastingLinkFault):
    """What they share."""

    able: ClassVar[frozenset[str]] = NONE


class Down(ProxyFault):
    """The proxies of the links listen no more: connections break, and new ones are refused."""

    kind: Literal["down"]


class Timeout(ProxyFault):
    """Bytes vanish, and a connection over which none came for a while is closed."""

    kind: Literal["timeout"]
    after_ms: Milliseconds
    """Closed after so long without a byte; heartbeats come every 200 ms."""

    @property
    def settings(self) -> Settings:
        return {"after_ms": self.after_ms}


class Limit(ProxyFault):
    """A connection is closed after so many bytes, every new one again."""

    kind: Literal["limit"]
    limit_bytes: Bytes
    """Counted from the start of the fault, or of the connection."""

    @property
    def settings(self) -> Settings:
        return {"limit_bytes": self.limit_bytes}


class Slicer(ProxyFault):
    """Bytes go out in small slices, with a pause after each."""

    kind: Literal["slicer"]
    slice_bytes: Bytes
    """Bytes of a slice."""
    pause_us: Annotated[int, Field(ge=1, le=1_000_000)]
    """Microseconds after each slice."""

    @property
    def settings(self) -> Settings:
        return {"slice_bytes": self.slice_bytes, "pause_us": self.pause_us}


class SlowClose(ProxyFault):
    """The end of a connection is told late, so that a death shows late. The first of each pair has to die meanwhile."""

    kind: Literal["slow_close"]
    delay_ms: Milliseconds
    """How late."""

    @property
    def settings(self) -> Settings:
        return {"delay_ms": self.delay_ms}
