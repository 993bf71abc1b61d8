"""How far a row of the experiments is: a bar on a terminal, nothing elsewhere (the command says when a row is done)."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from rich.console import Console
from rich.progress import Progress

from services.records import Fact, Finished, ShardsCommitted


class RowProgress:
    """A `ProgressSink`. The bar goes away when the run has finished."""

    def __init__(self, head: str, steps: int) -> None:
        console = Console(stderr=True)
        self._steps = steps
        self._bar: Progress | None = Progress(console=console, transient=True) if console.is_terminal else None
        self._task: Any = None if self._bar is None else self._bar.add_task(head, total=steps)
        if self._bar is not None:
            self._bar.start()

    def role(self, role: str, launch: int, state: str) -> None:
        """Not shown."""

    def fact(self, role: str, fact: Fact) -> None:
        """Commits move the bar, the end removes it."""
        if self._bar is None:
            return
        if isinstance(fact, ShardsCommitted):
            self._bar.update(self._task, completed=fact.step)
        elif isinstance(fact, Finished):
            self._bar.stop()

    def judged(self, so_far: Mapping[str, str]) -> None:
        """Not shown."""

    def note(self, text: str) -> None:
        """Not shown."""

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        """Not shown."""
