"""How far the end of a run has come, as the verifier sees it, and what it was told to expect of every reporter."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field

from services.roles.record_intake import Place


@dataclass(slots=True)
class Ending:
    """asked -> ended (no record is taken any more) -> verdict known -> writing -> told."""

    asked: bool = False
    expected: dict[Place, int | str] = field(default_factory=dict)  # number of the last record, or why it is excused
    patience_over: bool = False
    ended: bool = False
    verdict_json: str = ""
    writing: bool = False
    told: bool = False

    def expect(self, expected_json: str) -> None:
        """{source: {launch: last number or "excused: why"}}; what makes no sense is left out."""
        try:
            raw = json.loads(expected_json)
            self.expected = {
                (str(source), int(launch)): last
                for source, launches in raw.items()
                for launch, last in launches.items()
                if type(last) in (int, str)
            }
        except (ValueError, AttributeError, RecursionError):
            self.expected = {}

    def lacks(self, taken: Mapping[Place, int]) -> bool:
        """Whether records that were made are not here."""
        return any(isinstance(last, int) and taken.get(place, 0) < last for place, last in self.expected.items())

    def census(self, taken: Mapping[Place, int]) -> tuple[dict[str, int], dict[str, str]]:
        """How many records each reporter made (or how many are here, where nobody knows), and who is excused."""
        reporters = {_name(place): last for place, last in taken.items()}
        excused: dict[str, str] = {}
        for place, last in self.expected.items():
            if isinstance(last, int):
                reporters[_name(place)] = last
            else:
                reporters.setdefault(_name(place), 0)
                excused[_name(place)] = last
        return reporters, excused


def _name(place: Place) -> str:
    return f"{place[0]}/{place[1]}"
