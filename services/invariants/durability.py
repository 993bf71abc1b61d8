"""Durability: nothing is told before it is persisted, nothing published before it is synced.

The host of a role records `Durable` when a persist has returned, in the same numbering as the role's own facts. So a
fact that tells a decision must come after the `Durable` of that decision, one for each, and that write must have synced
every file that it wrote or appended to and every folder that it made or renamed into. What a reader may meet half
written (a checkpoint, the pointer, the log's first line) must have got its name by a rename, with everything in it
synced before. A rollback must find the newest checkpoint that was published, unless it names it as damaged.

What a relaunched coordinator reads in its log is durable by having been read: its facts before the first new `Durable`
need no other.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import (
    Admitted,
    CheckpointWritten,
    Closed,
    Committed,
    Durable,
    Fact,
    Opened,
    Published,
    Recovered,
    Regrouped,
    RolledBack,
    RunStarted,
)

REPAIR = "log repaired"
RENAMED_INTO_PLACE = ("checkpoint ", "publish ", "start")
_NAME = re.compile(r"ckpt-(\d+)-g(\d+)-i(\d+)")


class Durability(Invariant):
    name = "durability"
    holds_when = "nothing is told before it is persisted, nothing published before it is synced"
    watches = (
        RunStarted, Admitted, Regrouped, Opened, Closed, Committed, RolledBack, Recovered, Published,
        CheckpointWritten, Durable,
    )  # fmt: skip

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._durable: dict[tuple[str, int], dict[str, list[Mapping[str, int]]]] = {}
        self._wrote: set[tuple[str, int]] = set()  # (source, launch) that has made something new durable
        self._checkpoints: set[tuple[str, str]] = set()  # (role, checkpoint name) that is durable
        self._published: dict[tuple[str, str], tuple[Published, Entry]] = {}  # whose writer's record is still to come
        self._pointed_at: set[str] = set()  # names of checkpoints that were published

    def on_fact(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, Durable):
            self._keep(entry, fact)
            return
        if isinstance(fact, Published):
            self._require_checkpoint(entry, fact)
            self._pointed_at.add(fact.name)
        if isinstance(fact, RolledBack):
            self._require_newest(entry, fact)
        what, step = _write_of(fact)
        where = (entry.source, entry.launch)
        if entry.launch > 1 and entry.source == COORDINATOR and where not in self._wrote:
            return  # read back from its log
        self._require(entry, what, step)

    def finish(self) -> None:
        """A member's own record of its checkpoint may be lost with the member, and with nobody else."""
        for published, entry in self._published.values():
            if not self._may_lack(published):
                self.cannot_say(
                    f"step {published.step}: {published.name} is published (line {entry.seq}), and its writer never"
                    " recorded that it was durable"
                )

    # ------------------------------------------------------------ inside

    def _may_lack(self, published: Published) -> bool:
        """No step is opened before the checkpoint is published: who told of the step after it has told of it, too."""
        named = _NAME.fullmatch(published.name)
        generation = int(named[2]) if named is not None else 0
        return self.ledger.may_lack_records(published.writer, published.incarnation, generation, published.step + 1)

    def _keep(self, entry: Entry, fact: Durable) -> None:
        where = (entry.source, entry.launch)
        if fact.what != REPAIR:
            self._wrote.add(where)
        if fact.what.startswith("checkpoint "):
            checkpoint = entry.source, fact.what.rpartition(" ")[2]
            self._checkpoints.add(checkpoint)
            self._published.pop(checkpoint, None)
            step = int(fact.what.split(" ")[1])
            self._require_synced(entry, fact.what, step, fact.operations)
        self._durable.setdefault(where, {}).setdefault(fact.what, []).append(fact.operations)

    def _require(self, entry: Entry, what: str, step: int) -> None:
        self.checks += 1
        writes = self._durable.get((entry.source, entry.launch), {})
        found = writes.get(what)
        if not found:
            told = f"{type(entry.fact).__name__} was told before {what!r} was durable"
            self.violated(step, entry.source, told, entry.seq)
            return
        self._require_synced(entry, what, step, found.pop(0))
        if not found:
            del writes[what]

    def _require_synced(self, entry: Entry, what: str, step: int, operations: Mapping[str, int]) -> None:
        self.checks += 1
        count = operations.get
        files = count("write", 0) + count("append", 0)
        folders = count("make_dir", 0) + count("rename", 0)
        if files + folders == 0:
            self.violated(step, entry.source, f"{what!r} wrote nothing", entry.seq)
        if count("sync_file", 0) < files:
            told = f"{what!r} wrote {files} files and synced {count('sync_file', 0)}"
            self.violated(step, entry.source, told, entry.seq)
        if count("early_rename", 0):
            told = f"{what!r} renamed {count('early_rename', 0)} things before they were synced"
            self.violated(step, entry.source, told, entry.seq)
        if what.startswith(RENAMED_INTO_PLACE) and not count("rename", 0):
            told = f"{what!r} was written in its place, where a crash leaves half of it; nothing was renamed"
            self.violated(step, entry.source, told, entry.seq)
        if count("sync_dir", 0) < folders:
            told = f"{what!r} changed {folders} folders and synced {count('sync_dir', 0)}"
            self.violated(step, entry.source, told, entry.seq)

    def _require_checkpoint(self, entry: Entry, fact: Published) -> None:
        """What is published must be durable: at once for the coordinator's own, by the writer's records otherwise."""
        self.checks += 1
        if fact.writer:
            checkpoint = worker_role(fact.writer), fact.name
            if checkpoint not in self._checkpoints:
                self._published[checkpoint] = fact, entry
            return
        if (COORDINATOR, fact.name) not in self._checkpoints and (entry.source, entry.launch) in self._wrote:
            self.violated(fact.step, COORDINATOR, f"{fact.name} was published before it was durable", entry.seq)

    def _require_newest(self, entry: Entry, fact: RolledBack) -> None:
        """Unpublished checkpoints may be newer than the pointer; none that was published may be passed over unnamed."""
        damaged = {name for name, _ in fact.damaged}
        due = max((name for name in self._pointed_at - damaged), key=_age_of, default="")
        self.checks += 1
        if due and _age_of(fact.name) < _age_of(due):
            told = f"rolled back to {fact.name}, although {due} was published and is not named as damaged"
            self.violated(fact.to_step, COORDINATOR, told, entry.seq)
        # What is newer is void from now on: nobody has to find it again.
        self._pointed_at = {name for name in self._pointed_at if _age_of(name) <= _age_of(fact.name)}


def _age_of(name: str) -> tuple[int, ...]:
    """(generation, step, incarnation): a checkpoint with a higher one is newer."""
    named = _NAME.fullmatch(name)
    if named is None:
        return ()
    step, generation, incarnation = map(int, named.groups())
    return generation, step, incarnation


def _write_of(fact: Fact) -> tuple[str, int]:  # noqa: PLR0911 - one line for each kind of fact
    """The write that must have returned before this fact is told (`Durable.what`), and the step that it concerns."""
    match fact:
        case RunStarted():
            return "start", fact.step
        case Admitted():
            return f"admission {fact.worker}.{fact.incarnation}", 0
        case Regrouped():
            return f"generation {fact.generation}", fact.step
        case Opened():
            return f"open {fact.step}", fact.step
        case Closed():
            return f"close {fact.step}.{fact.attempt}", fact.step
        case Committed():
            return f"{'skip' if fact.skip else 'commit'} {fact.step}.{fact.attempt}", fact.step
        case RolledBack():
            return f"rollback {fact.to_step}", fact.to_step
        case Recovered():
            return f"recovery {fact.incarnation}", fact.step
        case Published():
            return f"publish {fact.step} {fact.name}", fact.step
        case CheckpointWritten():
            return f"checkpoint {fact.step} {fact.name}", fact.step
        case _:
            raise AssertionError(f"{type(fact).__name__} tells of no write")
