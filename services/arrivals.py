"""Who came in during a run, by what the coordinator took for proved: started again, back after a lease, or new.

A worker of the first cast that is proved once was there from the start. Every further incarnation of a worker is a
comeback: of a process that was started again, as far as there were such starts, else of one that was away.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable


class Arrivals:
    """Fed what was proved; asked at the end."""

    def __init__(self) -> None:
        self._proved: dict[int, set[int]] = {}  # member -> incarnations

    def proved(self, member: int, incarnation: int) -> None:
        self._proved.setdefault(member, set()).add(incarnation)

    def counts(
        self, first_cast: int, launches: Iterable[tuple[str, int]], role_of: Callable[[int], str]
    ) -> dict[str, int]:
        """By the names that scenarios promise them under. `launches` are those that reported: (source, launch)."""
        highest: dict[str, int] = {}
        for source, launch in launches:
            highest[source] = max(launch, highest.get(source, 0))
        found = {"relaunches": 0, "returns": 0, "joins": 0}
        for member, incarnations in self._proved.items():
            comebacks = len(incarnations) - 1
            relaunched = min(comebacks, highest.get(role_of(member), 1) - 1)
            found["relaunches"] += relaunched
            found["returns"] += comebacks - relaunched
            found["joins"] += member > first_cast
        return found
