"""What a person sees of a run while it goes on, always on stderr: a live table on a terminal, plain lines elsewhere.

Both are `ProgressSink`s and context managers. Neither decides anything; `testbed.run_state` holds the picture.
"""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TextIO

from rich.console import Console, Group, RenderableType
from rich.live import Live
from rich.table import Table
from rich.text import Text

from services.records import Committed, Fact, ShardsCommitted
from testbed.run_state import RoleState, RunState, describe, loss_text

_STEP_LINE_EVERY_S = 2.0
_REFRESH_PER_S = 8
_NOTES_SHOWN = 6
_SO_FAR = {"unknown": "open"}  # while the run goes on: nothing was checked yet, or not everything
_STYLES = {"pass": "green", "violated": "bold red", "unknown": "yellow", "acting": "red", "armed": "cyan"}


class PlainLines:
    """One line per thing worth knowing; steps at most every two seconds."""

    def __init__(self, state: RunState, stream: TextIO, clock: Callable[[], float] = time.monotonic) -> None:
        self._state = state
        self._stream = stream
        self._clock = clock
        self._began = self._last_step_line = clock()

    def __enter__(self) -> PlainLines:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        return None

    def role(self, role: str, launch: int, state: str) -> None:
        self._state.role(role, launch, state)
        if launch > 1 or state.startswith(("exited", "stopped")):
            self._say(f"{role} (launch {launch}) {state}")

    def fact(self, role: str, fact: Fact) -> None:
        self._state.fact(role, fact)
        line = describe(role, fact, self._state.sharded)
        if line:
            self._say(line)
        if isinstance(fact, Committed | ShardsCommitted) and self._clock() - self._last_step_line >= _STEP_LINE_EVERY_S:
            self._last_step_line = self._clock()
            self._say(step_line(self._state))

    def judged(self, so_far: Mapping[str, str]) -> None:
        before = dict(self._state.verdicts)
        self._state.judged(so_far)
        for invariant, verdict in sorted(so_far.items()):
            if verdict == "violated" and before.get(invariant) != verdict:
                self._say(f"{invariant}: {verdict}")

    def note(self, text: str) -> None:
        self._state.note(text)
        self._say(text)

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        self._state.waiting(what, missing, since_s, deadline_s)
        if line := self._state.wait_line():
            self._say(line)

    def _say(self, line: str) -> None:
        self._stream.write(f"[{self._clock() - self._began:7.2f} s] {line}\n")
        self._stream.flush()


class LiveTable:
    """The picture, drawn anew a few times a second by rich."""

    def __init__(self, state: RunState, console: Console) -> None:
        self._state = state
        self._notes: list[str] = []
        self._live = Live(get_renderable=self._draw, console=console, refresh_per_second=_REFRESH_PER_S, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, where: TracebackType | None
    ) -> None:
        self._live.stop()

    def role(self, role: str, launch: int, state: str) -> None:
        self._state.role(role, launch, state)

    def fact(self, role: str, fact: Fact) -> None:
        self._state.fact(role, fact)
        line = describe(role, fact, self._state.sharded)
        if line:
            self._remember(line)

    def judged(self, so_far: Mapping[str, str]) -> None:
        self._state.judged(so_far)

    def note(self, text: str) -> None:
        self._state.note(text)
        self._remember(text)

    def waiting(self, what: str, missing: tuple[str, ...], since_s: float, deadline_s: float) -> None:
        self._state.waiting(what, missing, since_s, deadline_s)

    def _remember(self, line: str) -> None:
        self._notes = [*self._notes, line][-_NOTES_SHOWN:]

    def _draw(self) -> RenderableType:
        return draw(self._state, self._notes)


def step_line(state: RunState) -> str:
    """The run in one line."""
    loss = loss_text(state.loss)
    if state.sharded:
        head = f"step {state.step}/{state.steps}, generation {state.generation}, loss {loss}"
        return f"{head}, evaluation loss {loss_text(state.evaluation)}, {state.members} shards"
    return (
        f"step {state.step}/{state.steps}, generation {state.generation}, loss {loss},"
        f" effective batch {state.effective_batch}, {state.members} members"
    )


def draw(state: RunState, notes: list[str]) -> RenderableType:
    """The whole picture as a renderable."""
    parts: list[RenderableType] = [Text(step_line(state), style="bold"), _role_table(dict(state.roles))]
    if state.faults:
        parts.append(_pairs("faults", dict(state.faults)))
    if state.verdicts:
        parts.append(
            _pairs("verdicts so far", {name: _SO_FAR.get(word, word) for name, word in state.verdicts.items()})
        )
    if state.waits_for is not None:
        parts.append(Text(str(state.waits_for), style="yellow"))
    parts += [Text(note, style="dim") for note in notes]
    return Group(*parts)


def make_sink(state: RunState, stream: TextIO | None = None) -> PlainLines | LiveTable:
    """The right one for where stderr goes."""
    stream = stream or sys.stderr
    console = Console(file=stream, highlight=False)
    return (
        LiveTable(state, console) if console.is_terminal and not console.is_dumb_terminal else PlainLines(state, stream)
    )


def _role_table(roles: Mapping[str, RoleState]) -> Table:
    table = Table(box=None, pad_edge=False)
    for heading in ("role", "state", "launch", "step", "loss"):
        table.add_column(heading, justify="left" if heading in ("role", "state") else "right")
    for name, row in sorted(roles.items()):
        table.add_row(name, row.state, str(row.launch), str(row.step or ""), loss_text(row.loss, unknown=""))
    return table


def _pairs(title: str, values: Mapping[str, str]) -> Text:
    text = Text(f"{title}: ")
    for index, (name, value) in enumerate(sorted(values.items())):
        text.append(("" if index == 0 else ", ") + f"{name} ")
        text.append(value, style=_STYLES.get(value, ""))
    return text
