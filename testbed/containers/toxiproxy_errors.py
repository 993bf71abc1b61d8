"""What can go wrong between us and Toxiproxy's API. All are `EngineError`s: the surroundings failed, not the run."""

from __future__ import annotations

from testbed.engines.base import EngineError


class ToxiproxyError(EngineError):
    """Base of all of them."""


class ToxiproxyUnreachable(ToxiproxyError):
    """Nobody listens there. Nothing was changed."""


class ToxiproxyHung(ToxiproxyError):
    """It took the request and did not answer in time. Whether it was carried out is unknown: read it back first."""


class ToxiproxyRefused(ToxiproxyError):
    """It said no. `status` is HTTP's: 404 no such proxy or toxic, 409 the name is taken, 500 often a busy port."""

    def __init__(self, message: str, status: int) -> None:
        super().__init__(message)
        self.status = status


class ToxiproxyMismatch(ToxiproxyError):
    """It said yes, and what it shows afterwards is something else. Or what answers is no Toxiproxy at all."""
