"""A complaint about a scenario, and where in the scenario it belongs."""

from __future__ import annotations

from dataclasses import dataclass

Path = tuple[str | int, ...]


@dataclass(frozen=True, slots=True)
class Problem:
    """`path` leads to the value in the scenario; indices count from 0."""

    path: Path
    text: str

    def __str__(self) -> str:
        return f"{key_text(self.path)}: {self.text}" if self.path else self.text


def at_fault(index: int, path: Path, text: str) -> Problem:
    """A complaint about fault number `index`, counted from 0."""
    return Problem(("faults", index, *path), text)


def key_text(path: Path) -> str:
    """The path as people count: "fault 2, trigger.phase", "training.workers"."""
    if len(path) > 1 and path[0] == "faults" and isinstance(path[1], int):
        rest = key_text(path[2:])
        return f"fault {path[1] + 1}, {rest}" if rest else f"fault {path[1] + 1}"
    words = ""
    for part in path:
        words += f"[{part + 1}]" if isinstance(part, int) else f".{part}"
    return words.removeprefix(".")
