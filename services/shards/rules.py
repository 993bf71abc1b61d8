"""The invariants of a layer-sharded run that speak of decisions rather than of numbers, fact by fact."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from services.invariants.base import PASS, REASONS_MAX, UNKNOWN, VIOLATED, Violation
from services.lineage import COORDINATOR, Entry
from services.records import (
    Admitted,
    BoundarySent,
    BoundaryUsed,
    Died,
    Durable,
    Expectation,
    Finished,
    Healed,
    Recovered,
    Refused,
    Regrouped,
    ShardLoaded,
    ShardPrepared,
    ShardProven,
    ShardsCommitted,
    ShardsEvaluated,
    ShardsOpened,
    ShardsRolledBack,
    ShardsSwapped,
    ShardSwapped,
)
from services.shards.ledger import ShardLedger

HOLDS_WHEN = {
    "gradient exactness": "each shard's outputs and gradients equal the verifier's own on the boundaries that it used,"
    " and its update is replayed bitwise",
    "boundary versions": "each boundary is used once, by the step and micro-batch that it belongs to, within the bound",
    "boundary fidelity": "what was used is what was sent, coded and decayed as recorded; bytes add up",
    "consistent cut": "after a commit or a rollback all shards stand at the same step",
    "checkpoint fidelity": "what a shard loads is what the decision of that step names, bitwise",
    "step monotonicity": "the step advances by exactly one per commit, on every shard",
    "fencing": "nothing of an old generation or incarnation has an effect",
    "durability": "nothing is told before it is persisted, nothing prepared before it is synced",
    "liveness": "once faults are undone, a step commits within the scenario's bound, and the run ends",
}
STALE_REASONS = ("old generation", "old incarnation", "not a member")


class Tally:
    """Checks, the earliest violation, and reasons why one cannot say."""

    def __init__(self, name: str) -> None:
        self.name = name
        self.checks = 0
        self.violations = 0
        self.first: Violation | None = None
        self.reasons: list[str] = []
        self.gave_up = False
        self.blind_from = 0  # the history line from which on it is not whole; 0: it is, as far as is known

    def violated(self, step: int, role: str, what: str, seq: int = 0) -> None:
        if self.blind_from and (not seq or seq >= self.blind_from):
            self.cannot_say(f"not whole from line {self.blind_from} on, the history seems to show: {role}: {what}")
            return
        self.violations += 1
        if self.first is None or step < self.first.step:
            self.first = Violation(step, role, what, seq)

    def cannot_say(self, why: str) -> None:
        self.gave_up = True
        if len(self.reasons) < REASONS_MAX:
            self.reasons.append(why)

    @property
    def verdict(self) -> str:
        if self.first is not None:
            return VIOLATED
        return UNKNOWN if self.gave_up or not self.checks else PASS

    def document(self) -> dict[str, Any]:
        first = self.first
        reasons = self.reasons or ([] if self.checks else ["nothing was checked"])
        return {
            "name": self.name,
            "holds_when": HOLDS_WHEN[self.name],
            "verdict": self.verdict,
            "checks": self.checks,
            "violations": self.violations,
            "first_violation": None
            if first is None
            else {"step": first.step, "role": first.role, "what": first.what, "seq": first.seq},
            "reasons": reasons if self.verdict == UNKNOWN else [],
        }


class Rules:
    """See the module's docstring. `condition` is how the run ended."""

    def __init__(self, ledger: ShardLedger, tallies: dict[str, Tally]) -> None:
        self.ledger, self.tallies = ledger, tallies
        self.condition = ""
        self._head = 0  # newest committed step
        self._stands: dict[int, int] = {}  # shard -> step, by its own word
        self._ended: set[tuple[int, int]] = set()
        self._highest = 0
        self._durable: dict[tuple[str, int], dict[str, dict[str, int]]] = {}
        self._fresh: set[tuple[str, int]] = set()  # (source, launch) that made something new durable
        self._decided: dict[int, ShardsCommitted] = {}
        self._initial: dict[int, tuple[str, str]] = {}
        self._states: dict[tuple[int, int, int], dict[str, tuple[int, str, str]]] = {}  # said by the shard, and of it
        self._healed: tuple[float, Healed] | None = None
        self._clean = 0
        self._last_ms = 0.0
        self._promised = 0
        self._promised_end = "finished"
        self._refused = 0
        self._evaluated: set[int] = set()  # steps
        self._unproved: set[int] = set()  # shards of which nobody told so far that they stand at the commit
        self._handlers: dict[type, Callable[[Entry], None]] = {
            Admitted: self._admitted, Died: self._died, Regrouped: self._regrouped, ShardsOpened: self._opened,
            ShardsCommitted: self._committed, ShardsSwapped: self._swapped, ShardsRolledBack: self._rolled_back,
            ShardLoaded: self._loaded, ShardProven: self._proven, ShardSwapped: self._shard_swapped,
            ShardPrepared: self._prepared, BoundarySent: self._member, BoundaryUsed: self._member,
            Durable: self._persisted, Recovered: self._decision, Healed: self._heal, Finished: self._finished,
            Refused: self._refuse, Expectation: self._expect,
            ShardsEvaluated: self._evaluation,
        }  # fmt: skip

    def on_fact(self, entry: Entry) -> None:
        handler = self._handlers.get(type(entry.fact))
        if handler is not None:
            handler(entry)

    def finish(self) -> None:
        live = self.tallies["liveness"]
        if not self.condition:
            live.cannot_say("the run has no end")
        elif self._healed is not None and self.condition == "finished" and self._clean < self._healed[1].clean_steps:
            due = self._healed[1].clean_steps
            live.cannot_say(f"the run ended {self._clean} steps after the healing, {due} were to be seen")
        if self.condition and self.condition != self._promised_end:
            promise = f"the scenario promises to end by {self._promised_end!r}"
            live.cannot_say(f"{promise}; the run ended by {self.condition!r}")
        if self._refused < self._promised:
            why = f"{self._promised} refused stale messages were promised, {self._refused} were refused"
            self.tallies["fencing"].cannot_say(why)
        if self.ledger.started is not None and self.ledger.shards == 1:
            for name in ("boundary versions", "boundary fidelity"):
                self.tallies[name].checks += 1  # the model is not cut: there is no boundary, and none was seen
        if not self._decided and self.condition not in ("", "finished"):
            for name in ("gradient exactness", "boundary versions", "boundary fidelity", "consistent cut"):
                self.tallies[name].cannot_say(f"nothing was committed before the run stopped: {self.condition}")

    def _check(self, name: str, holds: bool, step: int, role: str, what: str, seq: int) -> None:
        self.tallies[name].checks += 1
        if not holds:
            self.tallies[name].violated(step, role, what, seq)

    # ------------------------------------------------------------ membership

    def _admitted(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Admitted)
        what = f"incarnation {fact.incarnation} was given out twice"
        self._check("fencing", fact.incarnation > self._highest, 0, COORDINATOR, what, entry.seq)
        self._highest = max(self._highest, fact.incarnation)
        self._told(entry, f"admission {fact.worker}.{fact.incarnation}", 0)

    def _died(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Died)
        self._ended.add((entry.fact.worker, entry.fact.incarnation))

    def _regrouped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Regrouped)
        for member in fact.members:
            what = f"incarnation {member[1]} of shard {member[0]} is over"
            self._check("fencing", member not in self._ended, fact.step + 1, f"shard-{member[0]}", what, entry.seq)
        self._told(entry, f"generation {fact.generation}", fact.step)

    def _current(self, entry: Entry, step: int, generation: int) -> None:
        known = self.ledger.generation
        what = f"step {step} was decided on in generation {generation}, current is {known}"
        self._check("fencing", generation == known, step, COORDINATOR, what, entry.seq)

    def _member(self, entry: Entry) -> None:
        """A shard's word of an attempt counts only under a generation that it belongs to, once that is known."""
        fact = entry.fact
        assert isinstance(fact, BoundarySent | BoundaryUsed | ShardPrepared)
        known = self.ledger.members.get(fact.generation)
        if known is not None:
            what = f"incarnation {fact.incarnation} is no member of generation {fact.generation}"
            holds = known.get(fact.shard) == fact.incarnation
            self._check("fencing", holds, fact.step, f"shard-{fact.shard}", what, entry.seq)

    def _refuse(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Refused)
        if entry.fact.reason in STALE_REASONS:
            self.tallies["fencing"].checks += 1
            self._refused += 1

    def _expect(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Expectation)
        self._promised = int(entry.fact.promises.get("refused_stale", 0))
        self._promised_end = str(entry.fact.promises.get("condition", "finished"))

    # ------------------------------------------------------------ decisions

    def _opened(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardsOpened)
        what = f"step {fact.step} was opened after step {self._head}"
        self._check("step monotonicity", fact.step == self._head + 1, fact.step, COORDINATOR, what, entry.seq)
        self._current(entry, fact.step, fact.generation)
        whole = {shard for shard, _ in fact.members} == set(range(1, self.ledger.shards + 1))
        self._check("consistent cut", whole, fact.step, COORDINATOR, "a step was opened without every shard", entry.seq)
        what = f"step {fact.step} was opened although nobody told that shards {sorted(self._unproved)} had swapped"
        self._check("consistent cut", not self._unproved, fact.step, COORDINATOR, what, entry.seq)
        self._require_evaluation(entry, fact.step - 1)
        self._told(entry, f"open {fact.step}.{fact.attempt}", fact.step)

    def _evaluation(self, entry: Entry) -> None:
        assert isinstance(entry.fact, ShardsEvaluated)
        self._evaluated.add(entry.fact.step)

    def _require_evaluation(self, entry: Entry, step: int, last: bool = False) -> None:
        """What experiments compare must be there: the loss of every so many steps, the first and the last."""
        every = self.ledger.config.get("evaluate_every", 0)
        if self._is_read_back(entry) or not every or step in self._evaluated:
            return
        if last or step % every == 0:
            self.tallies["gradient exactness"].cannot_say(f"step {step} was to be evaluated, and no loss was told")

    def _is_read_back(self, entry: Entry) -> bool:
        """From the log, by a coordinator that came back: what was told beside it may be lost with the one before."""
        return entry.launch > 1 and (entry.source, entry.launch) not in self._fresh

    def _committed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardsCommitted)
        what = f"step {fact.step} was committed after step {self._head}"
        self._check("step monotonicity", fact.step == self._head + 1, fact.step, COORDINATOR, what, entry.seq)
        self._current(entry, fact.step, fact.generation)
        whole = [row[0] for row in fact.prepared] == list(range(1, self.ledger.shards + 1))
        self._check("consistent cut", whole, fact.step, COORDINATOR, "a commit does not name every shard", entry.seq)
        self._told(entry, f"commit {fact.step}.{fact.attempt}", fact.step)
        self._head = fact.step
        self._decided[fact.step] = fact
        self._unproved = set() if self._is_read_back(entry) else set(range(1, self.ledger.shards + 1))
        self._alive(entry)

    def _swapped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardsSwapped)
        decided = self._decided.get(fact.step)
        named = {} if decided is None else {row[0]: row[3:] for row in decided.prepared}
        for shard, _, parameters, moments in fact.swapped:
            what = f"shard {shard} stands at another state of step {fact.step} than was decided"
            holds = named.get(shard) == (parameters, moments)
            self._check("consistent cut", holds, fact.step, f"shard-{shard}", what, entry.seq)
        told = {shard: incarnation for shard, incarnation, _, _ in fact.swapped}
        members = self.ledger.members.get(fact.generation, {})
        what = f"step {fact.step} counts as swapped by shards {sorted(told)}, members are {sorted(members)}"
        self._check("consistent cut", told == members, fact.step, COORDINATOR, what, entry.seq)
        self._unproved -= told.keys()

    def _rolled_back(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardsRolledBack)
        what = f"a rollback from step {self._head} to {fact.to_step}"
        self._check("step monotonicity", fact.to_step <= self._head, fact.to_step, COORDINATOR, what, entry.seq)
        self._told(entry, f"rollback {fact.to_step}", fact.to_step)
        self._head = fact.to_step
        self._decided = {step: known for step, known in self._decided.items() if step <= fact.to_step}
        self._stands.clear()
        self._unproved = set()

    def _decision(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Recovered)
        self._unproved = set()  # what the launch before it heard may be lost with it
        self._told(entry, f"recovery {entry.fact.incarnation}", entry.fact.step)

    # ------------------------------------------------------------ shards

    def _loaded(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardLoaded)
        self._stands[fact.shard] = fact.step
        self._same_state(fact, "loaded", entry.seq)
        role, digests = f"shard-{fact.shard}", (fact.parameters_digest, fact.moments_digest)
        if fact.step == 0:
            first = self._initial.setdefault(fact.shard, digests)
            what = "its initial state is another one than before"
            self._check("checkpoint fidelity", digests == first, 0, role, what, entry.seq)
            return
        decided = self._decided.get(fact.step)
        if decided is None:
            self.tallies["checkpoint fidelity"].cannot_say(
                f"{role} loaded step {fact.step}, whose decision is not here"
            )
            return
        named = {row[0]: row[2:] for row in decided.prepared}[fact.shard]
        what = f"it loaded {fact.file} as step {fact.step}, the decision names {named[0]} with another state"
        self._check("checkpoint fidelity", named == (fact.file, *digests), fact.step, role, what, entry.seq)

    def _proven(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardProven)
        what = f"it was let in at step {fact.step} while the run stands at {self._head}"
        self._check("consistent cut", fact.step == self._head, fact.step, f"shard-{fact.shard}", what, entry.seq)
        self._same_state(fact, "let in with", entry.seq)
        self._unproved.discard(fact.shard)

    def _same_state(self, fact: ShardLoaded | ShardProven, how: str, seq: int) -> None:
        """What a shard loaded is what it was let in with; the two are told by different roles, in either order."""
        place = (fact.shard, fact.incarnation, fact.generation)
        said = self._states.setdefault(place, {})
        said[how] = (fact.step, fact.parameters_digest, fact.moments_digest)
        if len(said) == 2:
            what = ", ".join(f"{word} step {state[0]} {state[1][:12]}" for word, state in sorted(said.items()))
            holds = len(set(said.values())) == 1
            self._check("consistent cut", holds, fact.step, f"shard-{fact.shard}", f"another state: {what}", seq)

    def _prepared(self, entry: Entry) -> None:
        self._member(entry)
        fact = entry.fact
        assert isinstance(fact, ShardPrepared)
        if fact.file:
            self._told(entry, f"prepared {fact.step} {fact.file}", fact.step)

    def _shard_swapped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, ShardSwapped)
        before = self._stands.get(fact.shard, fact.step - 1)
        self._stands[fact.shard] = fact.step
        what = f"it went from step {before} to {fact.step}"
        self._check("step monotonicity", fact.step == before + 1, fact.step, f"shard-{fact.shard}", what, entry.seq)

    # ------------------------------------------------------------ durability

    def _persisted(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Durable)
        where = (entry.source, entry.launch)
        if fact.what != "log repaired":
            self._fresh.add(where)
        self._durable.setdefault(where, {})[fact.what] = fact.operations

    def _told(self, entry: Entry, what: str, step: int) -> None:
        """The write that this fact tells of must have returned, with every file and folder synced."""
        where = (entry.source, entry.launch)
        if entry.source == COORDINATOR and entry.launch > 1 and where not in self._fresh:
            return  # read back from its log
        operations = self._durable.get(where, {}).pop(what, None)
        if operations is None:
            told = f"{type(entry.fact).__name__} was told before {what!r} was durable"
            self._check("durability", False, step, entry.source, told, entry.seq)
            return
        count = operations.get
        files, folders = count("write", 0) + count("append", 0), count("make_dir", 0) + count("rename", 0)
        synced = files > 0 and count("sync_file", 0) >= files and count("sync_dir", 0) >= folders
        synced = synced and not count("early_rename", 0)
        told = f"{what!r} did not sync all that it wrote: {operations}"
        self._check("durability", synced, step, entry.source, told, entry.seq)
        if isinstance(entry.fact, ShardPrepared) and not count("rename", 0):
            told = f"{what!r} was written in place: a reader may meet half a file"
            self._check("durability", False, step, entry.source, told, entry.seq)

    # ------------------------------------------------------------ liveness

    def _heal(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Healed)
        self._healed, self._clean, self._last_ms = (entry.at_ms, entry.fact), 0, entry.at_ms

    def _alive(self, entry: Entry) -> None:
        self.tallies["liveness"].checks += 1
        if self._healed is None:
            return
        self._clean += 1
        took_ms, bound_ms = entry.at_ms - self._last_ms, self._healed[1].bound_ms
        if self._clean <= self._healed[1].clean_steps and took_ms > bound_ms:
            what = f"the step took {took_ms:.0f} ms, the bound is {bound_ms:.0f}"
            self.tallies["liveness"].violated(self._head, COORDINATOR, what, entry.seq)
        self._last_ms = entry.at_ms

    def _finished(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Finished)
        self.condition = fact.condition
        due = self.ledger.config.get("steps", 0) if fact.condition == "finished" else 0
        what = f"finished at step {fact.step} of {due}, committed is step {self._head}"
        holds = fact.condition != "finished" or due <= fact.step == self._head
        self._check("liveness", holds, fact.step, COORDINATOR, what, entry.seq)
        if fact.condition == "finished":
            self._require_evaluation(entry, fact.step, last=True)
