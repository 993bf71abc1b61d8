"""The registry of planted bugs and the way in which they are put into running code.

A bug names what it patches by the final class (`Worker`, `Coordinator`, …) whoever defines the method, and keeps what
it has to remember between two calls in `memory(role)`, so that it acts alike where roles share a process and where not.
"""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.errors import ConfigurationError

Patch = tuple[object, str, Any]
Patches = Callable[[], list[Patch]]

VIOLATED = "violated"
UNKNOWN = "unknown"
STRATEGIES = ("ring", "ps")

_OWN_SCENARIOS = Path(__file__).parent / "scenarios"
_ABSENT = object()


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug: what it does, which invariant must catch it, and a scenario in which it shows.

    `expected` is the verdict; where that is "unknown" there is no `invariant`. `saved`: it damages the history that is
    saved, so it is that which is judged (`services.verify`), not what the verifier heard while the run went on.
    `resumes`: the run goes on from the last checkpoint of an earlier, shorter one without the bug.
    """

    name: str
    what: str
    invariant: str
    scenario: str
    strategy: str  # "" for either
    patches: Patches
    expected: str = VIOLATED
    saved: bool = False
    resumes: bool = False

    @property
    def strategies(self) -> tuple[str, ...]:
        return (self.strategy,) if self.strategy else STRATEGIES

    @property
    def scenario_argument(self) -> str:
        """As `gradstorm run` takes it: the name of a scenario that ships, or a file."""
        own = _OWN_SCENARIOS / f"{self.scenario}.yaml"
        return str(own) if own.exists() else self.scenario


PLANTS: dict[str, Plant] = {}


def plant(
    name: str,
    *,
    invariant: str = "",
    scenario: str = "clean",
    strategy: str = "",
    expected: str = VIOLATED,
    saved: bool = False,
    resumes: bool = False,
) -> Callable[[Patches], Patches]:
    """Register the decorated function as the bug `name`; the first line of its docstring says what it does."""

    def register(patches: Patches) -> Patches:
        assert name not in PLANTS, f"two bugs are called {name}"
        assert (expected == VIOLATED) == bool(invariant), f"{name}: an invariant violates, unknown has none"
        what = (patches.__doc__ or "").strip().splitlines()[0]
        PLANTS[name] = Plant(name, what, invariant, scenario, strategy, patches, expected, saved, resumes)
        return patches

    return register


def find_plant(name: str) -> Plant:
    """The bug of that name. Raises ConfigurationError with the nearest name."""
    if name not in PLANTS:
        close = difflib.get_close_matches(name, PLANTS, n=1)
        hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(PLANTS))}"
        raise ConfigurationError(f"there is no planted bug {name!r}; {hint}")
    return PLANTS[name]


def memory(role: object) -> dict[str, Any]:
    """What bugs remember about one object for as long as it lives."""
    kept: dict[str, Any] = vars(role).setdefault("_planted", {})
    return kept


@contextmanager
def planted(names: Sequence[str]) -> Iterator[None]:
    """Put the named bugs in for as long as the context lasts. Raises ConfigurationError for an unknown name."""
    patches = [patch for name in names for patch in find_plant(name).patches()]
    for owner, attribute, _ in patches:
        assert hasattr(owner, attribute), f"nothing to patch: {owner} has no {attribute}"
    before = [(owner, attribute, vars(owner).get(attribute, _ABSENT)) for owner, attribute, _ in patches]
    try:
        for owner, attribute, replacement in patches:
            setattr(owner, attribute, replacement)
        yield
    finally:
        for owner, attribute, original in reversed(before):
            if original is _ABSENT:
                delattr(owner, attribute)  # it was inherited
            else:
                setattr(owner, attribute, original)
