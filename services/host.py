"""The pure part of every shell: one role, its record outbox and its holds.

The simulator and the gRPC shell both drive `Host`, and only carry out what it returns. Duties of its caller: those of
`services.events`, and to pass `Linked(VERIFIER)` when the reporting link comes up. The host

- numbers each `Record`, keeps it until the verifier has stored it, and re-sends after a reconnect;
- keeps a `SendStored` until the records made before it are stored, or the verifier is gone or does not come in time;
- stops the role at an armed hold: the rest of its effects and all later events wait until `release`;
- tells of every persist that returned (`Durable`), in the same numbering as the role's own facts.
"""

from __future__ import annotations

from collections import Counter, deque
from dataclasses import dataclass, replace
from itertools import islice
from typing import Protocol

from services.events import (
    VERIFIER,
    CancelTimer,
    Compute,
    Cut,
    Effect,
    Event,
    Heard,
    Identify,
    Linked,
    Load,
    Note,
    Persist,
    Persisted,
    Phase,
    Received,
    Record,
    Send,
    SendStored,
    SetTimer,
    Stop,
    TimerFired,
    Unlinked,
)
from services.fact_codec import fact_to_numbered
from services.messages import Numbered, Report, Stored
from services.records import Durable, Fact
from training.disk import AppendFile, DiskOp, MakeDir, Remove, Rename, SyncDir, SyncFile, WriteFile

REPORT_RECORDS_MAX = 512
REPORT_BYTES_MAX = 64 << 20  # of arrays; one record may have more
REPORT_EVERY_MS = 5.0  # records wait this long for others to travel with, unless somebody waits for them
REPORT_TIMER = "host:report"
FIRST_LINK_MS = 3000.0  # what must be stored first waits so long for the first link with the verifier
FIRST_LINK_TIMER = "host:first link"
KEPT_BYTES_MAX = 1 << 29  # arrays of records that the verifier has not stored

OPERATION_NAMES: dict[type[DiskOp], str] = {
    AppendFile: "append",
    MakeDir: "make_dir",
    Remove: "remove",
    Rename: "rename",
    SyncDir: "sync_dir",
    SyncFile: "sync_file",
    WriteFile: "write",
}


_OF_TRANSPORT = frozenset({Received, TimerFired, Linked, Unlinked})  # events that may be the host's business
_OF_HOST = frozenset({Record, Phase, SendStored, Persist, Stop})  # effects that are


class Role(Protocol):
    """What the host drives."""

    def handle(self, now_ms: float, event: Event) -> list[Effect]: ...


@dataclass(frozen=True, slots=True)
class Hold:
    """An armed point in a role. `stand`: the role waits there until released; otherwise its passing is reported."""

    name: str
    role: str
    step: int
    phase: str
    chunk: int = 0
    stand: bool = True


@dataclass(frozen=True, slots=True)
class HoldReached:
    """The role stands at the hold (or, with `stand` False, passed it)."""

    hold: Hold


@dataclass(frozen=True, slots=True)
class Observed:
    """A fact as the role recorded it, for whoever watches the run. `Durable`, the host's own, is not told of."""

    fact: Fact


HostEffect = (
    Send | Cut | Compute | Persist | Load | SetTimer | CancelTimer | Note | Identify | Stop | HoldReached | Observed
)  # fmt: skip


class Recorder:
    """Numbers facts and keeps them until the verifier has stored them."""

    def __init__(self, source: str, launch: int, evidence: bool = True) -> None:
        self.source = source
        self.launch = launch
        self._evidence = evidence  # False: the run has no verifier; facts are counted and let go
        self.last = 0  # number of the newest record
        self._kept: deque[Numbered] = deque()
        self._kept_bytes = 0
        self.pending = 0  # the newest kept ones, which have not been put into a report

    def add(self, fact: Fact) -> None:
        self.last += 1
        if not self._evidence:
            return
        numbered = fact_to_numbered(fact, self.last)
        self._kept.append(numbered)
        self.pending += 1
        self._kept_bytes += _size(numbered)
        if self._kept_bytes > KEPT_BYTES_MAX:
            self._let_arrays_go()

    def report(self) -> list[Report]:
        """What has been added since the last report."""
        fresh = list(islice(reversed(self._kept), self.pending))[::-1]
        self.pending = 0
        return self._batches(fresh)

    def again(self) -> list[Report]:
        """Everything unstored, behind an empty report that asks the verifier where it stands."""
        self.pending = 0
        return [Report(self.source, self.launch, ()), *self._batches(list(self._kept))]

    def stored(self, message: Stored) -> None:
        if (message.source, message.launch) != (self.source, self.launch):
            return
        while self._kept and self._kept[0].sequence <= message.through:
            self._kept_bytes -= _size(self._kept.popleft())

    def _let_arrays_go(self) -> None:
        """With no verifier for so long, the oldest arrays go; the facts stay, and their steps cannot be judged."""
        for place, numbered in enumerate(self._kept):
            if self._kept_bytes <= KEPT_BYTES_MAX:
                return
            if numbered.arrays:
                self._kept_bytes -= _size(numbered)
                self._kept[place] = replace(numbered, arrays=())

    @property
    def unstored(self) -> int:
        return len(self._kept)

    def has_stored(self, number: int) -> bool:
        """Whether the record of this number, and every one before it, is stored."""
        return not self._kept or self._kept[0].sequence > number

    def _batches(self, records: list[Numbered]) -> list[Report]:
        batches: list[list[Numbered]] = []
        room = 0
        for record in records:
            size = _size(record)
            if not batches or len(batches[-1]) == REPORT_RECORDS_MAX or size > room:
                batches.append([])
                room = REPORT_BYTES_MAX
            batches[-1].append(record)
            room -= size
        return [Report(self.source, self.launch, tuple(batch)) for batch in batches]


class Host:
    """Drives one role. All methods return the effects that the shell must carry out, in order."""

    def __init__(
        self, name: str, launch: int, role: Role, evidence: bool = True, report_every_ms: float = REPORT_EVERY_MS
    ) -> None:
        self.name = name
        self._report_every_ms = report_every_ms
        self.role = role
        self.recorder = Recorder(name, launch, evidence)
        self._holds: dict[tuple[str, int, int], Hold] = {}
        self._standing: Hold | None = None
        self._announced = True  # the standing hold has been reported
        self._effects: deque[Effect] = deque()  # of the role, not carried out: behind a hold
        self._events: deque[Event] = deque()  # for the role, not handled: behind a hold
        self._late: deque[tuple[int, Send]] = deque()  # number of the record that must be stored first
        self._persists: dict[str, Persist] = {}
        self._reporting = False
        self._report_due = False  # the timer is running
        self._expecting = evidence and name != VERIFIER  # the first link with the verifier may be on its way
        self._expecting_since = False  # somebody waits for it, and the timer is running
        self._stopping = False

    @property
    def unstored(self) -> int:
        """Records that the verifier has not stored yet."""
        return self.recorder.unstored

    @property
    def standing(self) -> Hold | None:
        return self._standing

    def arm(self, hold: Hold) -> None:
        """Arm before the role's next event. One hold for each (phase, step, chunk)."""
        self._holds[hold.phase, hold.step, hold.chunk] = hold

    def release(self, now_ms: float, hold_name: str) -> list[HostEffect]:
        """Let the role go on from the named hold, or disarm it if the role does not stand there."""
        self._holds = {key: hold for key, hold in self._holds.items() if hold.name != hold_name}
        if self._standing is None or self._standing.name != hold_name:
            return []
        self._standing = None
        out: list[HostEffect] = []
        self._carry_out(out)
        while self._events and self._standing is None:
            self._run(now_ms, self._events.popleft(), out)
        self._flush(out)
        return out

    def handle(self, now_ms: float, event: Event) -> list[HostEffect]:
        out: list[HostEffect] = []
        if type(event) in _OF_TRANSPORT and self._transport(event, out):
            self._announce(out)
            return out
        if self._standing is not None:
            if not isinstance(event, Heard):
                self._events.append(event)
            return out
        self._run(now_ms, event, out)
        self._flush(out)
        return out

    # ------------------------------------------------------------ inside

    def _transport(self, event: Event, out: list[HostEffect]) -> bool:
        """Handle what concerns the reporting link. True when the role need not see the event."""
        if isinstance(event, Received):
            if not isinstance(event.message, Stored):
                return False
            self.recorder.stored(event.message)
            self._send_late(out)
            return True
        if isinstance(event, TimerFired) and event.name == REPORT_TIMER:
            self._report_due = False
            self._report(out)
            return True
        if isinstance(event, TimerFired) and event.name == FIRST_LINK_TIMER:
            self._expecting = False
            self._send_late(out)
            return True
        if isinstance(event, Linked) and event.peer == VERIFIER and self.name != VERIFIER:
            self._reporting, self._expecting = True, False
            out.extend(Send(VERIFIER, report) for report in self.recorder.again())
            return False
        if isinstance(event, Unlinked) and event.peer == VERIFIER and self.name != VERIFIER:
            self._reporting = False
            self._send_late(out)
            self._announce(out)
        return False

    def _run(self, now_ms: float, event: Event, out: list[HostEffect]) -> None:
        if isinstance(event, Persisted):
            done = self._persists.pop(event.token, None)
            if done is not None and self.name != VERIFIER:
                self.recorder.add(Durable(done.what, _count(done.operations)))  # ours, for the verifier alone
        self._effects.extend(self.role.handle(now_ms, event))
        self._carry_out(out)

    def _carry_out(self, out: list[HostEffect]) -> None:
        while self._effects and self._standing is None:
            effect = self._effects.popleft()
            kind = type(effect)
            if kind not in _OF_HOST:
                out.append(effect)  # type: ignore[arg-type]
            elif isinstance(effect, Record):
                self._record(effect.fact, out)
            elif isinstance(effect, Phase):
                self._pass(effect, out)
            elif isinstance(effect, SendStored):
                self._late.append((self.recorder.last, Send(effect.to, effect.message)))
            else:
                if isinstance(effect, Persist):
                    self._persists[effect.token] = effect
                self._stopping = self._stopping or isinstance(effect, Stop)
                out.append(effect)

    def _pass(self, phase: Phase, out: list[HostEffect]) -> None:
        hold = self._holds.pop((phase.name, phase.step, phase.chunk), None)
        if hold is None:
            return
        if not hold.stand:
            out.append(HoldReached(hold))
            return
        self._standing = hold
        self._announced = False

    def _record(self, fact: Fact, out: list[HostEffect]) -> None:
        self.recorder.add(fact)
        out.append(Observed(fact))

    def _flush(self, out: list[HostEffect]) -> None:
        """Report at once when somebody waits for the records (a standing hold, the end), else a little later."""
        if self.recorder.pending and self._reporting:
            awaited = self._standing is not None or self._stopping or bool(self._late)
            if awaited or self.recorder.pending >= REPORT_RECORDS_MAX:
                self._report(out)
            elif not self._report_due:
                self._report_due = True
                out.append(SetTimer(REPORT_TIMER, self._report_every_ms))
        self._send_late(out)
        self._announce(out)
        if self._expecting and not self._expecting_since and (self._late or not self._announced):
            self._expecting_since = True
            out.append(SetTimer(FIRST_LINK_TIMER, FIRST_LINK_MS))

    @property
    def _nobody_stores(self) -> bool:
        """The verifier is gone, or did not come in time: training goes on without it."""
        return not self._reporting and not self._expecting

    def _send_late(self, out: list[HostEffect]) -> None:
        while self._late and (self._nobody_stores or self.recorder.has_stored(self._late[0][0])):
            out.append(self._late.popleft()[1])

    def _report(self, out: list[HostEffect]) -> None:
        if self._reporting:
            out.extend(Send(VERIFIER, report) for report in self.recorder.report())

    def _announce(self, out: list[HostEffect]) -> None:
        """Report a standing hold once everything recorded before it is stored (or nobody is there to store it)."""
        if self._standing is None or self._announced:
            return
        if self.recorder.unstored == 0 or self._nobody_stores or self.name == VERIFIER:
            self._announced = True
            out.append(HoldReached(self._standing))


def _count(operations: tuple[DiskOp, ...]) -> dict[str, int]:
    counts = Counter(OPERATION_NAMES[type(operation)] for operation in operations)
    early = _early_renames(operations)
    return {**counts, "early_rename": early} if early else dict(counts)


def _early_renames(operations: tuple[DiskOp, ...]) -> int:
    """Renames of a file, or of a folder with a file, that was written and not synced yet: order counts, too."""
    unsynced: set[str] = set()
    early = 0
    for operation in operations:
        if isinstance(operation, WriteFile | AppendFile):
            unsynced.add(operation.path)
        elif isinstance(operation, SyncFile):
            unsynced.discard(operation.path)
        elif isinstance(operation, Rename):
            early += any(f"{path}/".startswith(f"{operation.source}/") for path in unsynced)
    return early


def _size(numbered: Numbered) -> int:
    return sum(array.nbytes for _, array in numbered.arrays) if numbered.arrays else 0
