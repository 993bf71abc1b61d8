"""How much evidence each launch of each role owes the verifier, for `Conclude`.

A launch that ended in order says how many records it made. One that was killed cannot, and its missing tail is
excused by the witness of its death; a missing middle never is.
"""

from __future__ import annotations

import json
from dataclasses import dataclass, field

from services.events import DRIVER, VERIFIER


@dataclass(slots=True)
class _Account:
    recorded: int = 0
    final: bool = False
    excused: str = ""


@dataclass(slots=True)
class EvidenceLedger:
    """Role and launch -> what is expected of it."""

    _accounts: dict[tuple[str, int], _Account] = field(default_factory=dict)

    def launched(self, role: str, launch: int) -> None:
        """A launch began; from now on it owes an account. The verifier, who asks for them, owes none."""
        if role != VERIFIER:
            self._accounts[role, launch] = _Account()

    def counted(self, role: str, launch: int, recorded: int) -> None:
        """It has made so many records so far."""
        account = self._accounts.get((role, launch))
        if account is not None and not account.final:
            account.recorded = max(account.recorded, recorded)

    def ended(self, role: str, launch: int, recorded: int) -> None:
        """It ended in order, with so many records in all."""
        account = self._accounts.get((role, launch))
        if account is not None:
            account.recorded, account.final = recorded, True

    def excuse(self, role: str, launch: int, why: str) -> None:
        """It was killed; the end of what it recorded may be missing."""
        account = self._accounts.get((role, launch))
        if account is not None:
            account.excused = why

    def unaccounted(self) -> tuple[tuple[str, int], ...]:
        """Launches that neither said how many records they made nor were killed."""
        return tuple(
            sorted(key for key, account in self._accounts.items() if not account.final and not account.excused)
        )

    @property
    def complaint(self) -> str:
        """Who ended without an account, so that nobody can say whether the end of what it recorded is missing."""
        silent = ", ".join(f"{role} (launch {launch})" for role, launch in self.unaccounted())
        return f"{silent} ended without saying how many records were made" if silent else ""

    def expected_json(self, driver_recorded: int) -> str:
        """The document of `Conclude`: source -> launch -> last number, or "excused: why"."""
        document: dict[str, dict[str, int | str]] = {DRIVER: {"1": driver_recorded}}
        for (role, launch), account in sorted(self._accounts.items()):
            excused = account.excused and not account.final
            document.setdefault(role, {})[str(launch)] = f"excused: {account.excused}" if excused else account.recorded
        return json.dumps(document, sort_keys=True)
