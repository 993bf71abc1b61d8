"""From facts to shard steps: what each shard sent, used and prepared in the attempt that was committed.

Facts of one source keep their order; those of different sources interleave. A step is complete when its commit is known
and every shard's `ShardPrepared` of that attempt has come, with every boundary that was sent and used for it (a shard
records them before). Rolled back steps are void. A relaunched coordinator reads its log out again; what is repeated is
not taken twice (the judge sees to that).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from services.canonical_json import decode_object
from services.lineage import Entry
from services.records import (
    BoundarySent,
    BoundaryUsed,
    Regrouped,
    RunStarted,
    ShardLoaded,
    ShardPrepared,
    ShardsCommitted,
    ShardsOpened,
    ShardsRolledBack,
)
from services.shards.bookkeeping import Held, require_sizes, start

Version = tuple[int, int, str]  # micro-batch, cut, direction
AttemptKey = tuple[int, int, int]  # generation, step, attempt


@dataclass(slots=True)
class AttemptEvidence:
    """What the shards recorded of one attempt."""

    sent: dict[tuple[int, Version], Entry] = field(default_factory=dict)  # by shard
    used: dict[tuple[int, Version], list[Entry]] = field(default_factory=dict)
    prepared: dict[int, Entry] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class ShardStep:
    """A committed step with the evidence of its attempt."""

    number: int
    committed: ShardsCommitted
    evidence: AttemptEvidence
    seq: int


class ShardLedger:
    """See the module's docstring. `on_complete` is called in ascending step, within what is not void."""

    def __init__(self, on_complete: Callable[[ShardStep], None]) -> None:
        self.config: dict[str, Any] = {}
        self.started: RunStarted | None = None
        self.generation = 0
        self.members: dict[int, dict[int, int]] = {}  # generation -> shard -> incarnation
        self.skips: dict[AttemptKey, str] = {}  # attempts that were to change nothing, and why
        self.commits: dict[int, ShardsCommitted] = {}  # step -> decision, not void
        self.void = 0
        self.trouble: list[str] = []  # why something could not be followed
        self.held: dict[int, dict[int, Held]] = {}  # step -> shard -> replayed state
        self.checked: set[int] = set()
        self._on_complete = on_complete
        self._attempts: dict[AttemptKey, AttemptEvidence] = {}
        self._pending: dict[int, tuple[ShardsCommitted, int]] = {}
        self._next = 1
        self._early: list[ShardLoaded] = []  # arrived before the run's start

    @property
    def shards(self) -> int:
        return len(self.config.get("cuts", ())) + 1

    def take(self, entry: Entry) -> None:
        """Take one fact that is not repeated."""
        match entry.fact:
            case RunStarted() as fact:
                config = decode_object(fact.config_json)
                require_sizes(config)
                self.started, self.config = fact, config
                early, self._early = self._early, []
                for loaded in early:
                    self._loaded(loaded)
            case Regrouped() as fact:
                self.members[fact.generation] = dict(fact.members)
                self.generation = max(self.generation, fact.generation)
            case ShardLoaded() as fact:
                self._loaded(fact)
            case BoundarySent() as fact:
                evidence = self._attempt(fact.generation, fact.step, fact.attempt)
                evidence.sent.setdefault((fact.shard, (fact.micro_batch, fact.cut, fact.direction)), entry)
            case BoundaryUsed() as fact:
                evidence = self._attempt(fact.generation, fact.step, fact.attempt)
                key = (fact.shard, (fact.micro_batch, fact.cut, fact.direction))
                evidence.used.setdefault(key, []).append(entry)
            case ShardPrepared() as fact:
                self._attempt(fact.generation, fact.step, fact.attempt).prepared[fact.shard] = entry
                self._advance()
            case ShardsOpened() as fact:
                if fact.skip:
                    self.skips[fact.generation, fact.step, fact.attempt] = fact.skip
            case ShardsCommitted() as fact:
                self.commits[fact.step] = fact
                self._pending[fact.step] = (fact, entry.seq)
                self._advance()
            case ShardsRolledBack() as fact:
                self._roll_back(fact)
            case _:
                pass

    def finish(self) -> None:
        """Nothing more comes: incomplete steps are as complete as they will ever be."""
        for number in sorted(self._pending):
            self._complete(number)

    # ------------------------------------------------------------ inside

    def _attempt(self, generation: int, step: int, attempt: int) -> AttemptEvidence:
        return self._attempts.setdefault((generation, step, attempt), AttemptEvidence())

    def _loaded(self, fact: ShardLoaded) -> None:
        if self.started is None:  # records of different roles arrive in any order
            self._early.append(fact)
        elif fact.step == 0 and fact.parameters is not None:
            self.held.setdefault(0, {}).setdefault(fact.shard, start(self.config["optimizer"], fact.parameters))

    def _advance(self) -> None:
        while (waiting := self._pending.get(self._next)) is not None:
            fact, _ = waiting
            evidence = self._attempt(fact.generation, fact.step, fact.attempt)
            if len(evidence.prepared) < self.shards:
                return
            self._complete(self._next)

    def _complete(self, number: int) -> None:
        fact, seq = self._pending.pop(number)
        self._next = number + 1
        evidence = self._attempt(fact.generation, fact.step, fact.attempt)
        self._on_complete(ShardStep(number, fact, evidence, seq))
        for key in [key for key in self._attempts if key[1] <= number]:
            del self._attempts[key]
        for step in [step for step in self.held if 0 < step < number - 64]:
            del self.held[step]

    def _roll_back(self, fact: ShardsRolledBack) -> None:
        for number in [number for number in self.commits if number > fact.to_step]:
            del self.commits[number]
            self._pending.pop(number, None)
            self.held.pop(number, None)
            self.checked.discard(number)
            self.void += 1
        self._next = min(self._next, fact.to_step + 1)
