"""The registry of planted bugs and the way in which they are put into running code."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from training.errors import ConfigurationError

Patch = tuple[object, str, Any]
Patches = Callable[[], list[Patch]]


@dataclass(frozen=True, slots=True)
class Plant:
    """A bug: what it does, which invariant must catch it, and a scenario in which it shows."""

    name: str
    what: str
    invariant: str
    scenario: str
    strategy: str  # "" for either
    patches: Patches


PLANTS: dict[str, Plant] = {}


def plant(name: str, *, invariant: str, scenario: str = "clean", strategy: str = "") -> Callable[[Patches], Patches]:
    """Register the decorated function as the bug `name`; the first line of its docstring says what it does."""

    def register(patches: Patches) -> Patches:
        what = (patches.__doc__ or "").strip().splitlines()[0]
        PLANTS[name] = Plant(name, what, invariant, scenario, strategy, patches)
        return patches

    return register


@contextmanager
def planted(names: Sequence[str]) -> Iterator[None]:
    """Put the named bugs in for as long as the context lasts. Raises ConfigurationError for an unknown name."""
    for name in names:
        if name not in PLANTS:
            close = difflib.get_close_matches(name, PLANTS, n=1)
            hint = f"did you mean {close[0]!r}?" if close else f"known: {', '.join(sorted(PLANTS))}"
            raise ConfigurationError(f"there is no planted bug {name!r}; {hint}")
    patches = [patch for name in names for patch in PLANTS[name].patches()]
    before = [(owner, attribute, owner.__dict__[attribute]) for owner, attribute, _ in patches]
    try:
        for owner, attribute, replacement in patches:
            setattr(owner, attribute, replacement)
        yield
    finally:
        for owner, attribute, original in reversed(before):
            setattr(owner, attribute, original)
