"""The one error that foreign bytes may cause.

Whatever arrives from outside (a frame, a record, a handshake) is either understood or refused with a `WireError` that
says what was wrong and who sent it. Duty of the caller: log it, refuse the sender, and go on.
"""

from __future__ import annotations

from training.errors import GradstormError


class WireError(GradstormError):
    """`what` is wrong with something that `source` sent (empty: nobody has introduced themselves yet)."""

    def __init__(self, what: str, source: str = "") -> None:
        super().__init__(f"{source or 'a stranger'}: {what}")
        self.what = what
        self.source = source

    def told_by(self, source: str) -> WireError:
        """The same error once the sender is known."""
        return WireError(self.what, source)
