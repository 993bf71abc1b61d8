"""From facts in any order to evidence step by step: lineages, memberships, and the replayed state after every step.

Facts of one source keep their order; those of different sources interleave in any way. So a step is *replayed* as soon
as its commit and its reduced value are both there and the step before it is replayed, and it is *complete* once every
contribution that it names is there too (or is known never to come). Values are found by what certifies them: the digest
that the commit names.

A rollback starts a new lineage. Steps above it are void: they are neither counted nor waited for.

A relaunched coordinator records its whole log again; what an earlier launch of it told already is repeated, and not
taken a second time.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from services.canonical_json import decode_object
from services.epochs import Permutations
from services.lineage import COORDINATOR, Entry, Lineage, Step, packed_ids, worker_role
from services.records import (
    Closed,
    Committed,
    Contributed,
    Died,
    Ended,
    Opened,
    Recovered,
    Reduced,
    Regrouped,
    RolledBack,
    RunStarted,
    StateApplied,
)
from services.reference import Reference
from services.replay import ReplayedState, digest_of, replay_step

WAITING_BYTES_MAX = 1 << 30  # reduced values that wait for the step before them
INCOMPLETE_BYTES_MAX = 1 << 28  # states kept for steps whose contributions are not all there
SAMPLES_MAX = 1 << 24  # of a run whose data is not at hand

Json = dict[str, Any]
Listener = Callable[[Step], None]


@dataclass(frozen=True, slots=True)
class _Latest:
    """The launch of a member's process, and the state that it held when it last told of one."""

    launch: int
    generation: int
    step: int


class Ledger:
    """See the module's docstring. `on_replayed` and `on_complete` are called while a fact is taken."""

    def __init__(self, on_replayed: Listener, on_complete: Listener) -> None:
        self.config: Json = {}
        self.started: RunStarted | None = None
        self.lineages: list[Lineage] = []
        self.members: dict[int, dict[int, int]] = {}  # generation -> worker -> incarnation
        self.generation = 0  # the coordinator's newest
        self.dead: set[tuple[int, int]] = set()  # (worker, incarnation) that the coordinator holds for dead
        self.excused: dict[str, str] = {}  # "source/launch" -> why its last records may be missing
        self._latest: dict[tuple[int, int], _Latest] = {}  # (worker, incarnation) -> what it told last
        self.permutations: Permutations | None = None
        self.sampler: Json = {}  # the sampler state that the run started from
        self.reference: Reference | None = None  # given by the judge, which has the dataset
        self.samples_max = SAMPLES_MAX  # likewise: how many there are
        self.trouble: list[str] = []  # why something could not be followed
        self._on_replayed = on_replayed
        self._on_complete = on_complete
        self._active = 0  # index of the lineage that is being replayed
        self._opened: Opened | None = None
        self._closed: Closed | None = None
        self._reduced: dict[int, list[Reduced]] = {}
        self._reduced_bytes = 0
        self._full = False
        self._contributed: dict[int, list[Contributed]] = {}
        self._incomplete: dict[tuple[int, int], Step] = {}  # (lineage, number), replayed
        self._told: dict[int, int] = {}  # hash of each of the coordinator's facts -> launch that told it first
        self._recovered: set[int] = set()  # launches of the coordinator that have read their log
        self._takers: dict[type, Callable[[Entry], None]] = {
            Contributed: self._take_contributed,
            StateApplied: self._take_state_applied,
            Reduced: self._take_reduced,
            Opened: self._take_opened,
            Closed: self._take_closed,
            Committed: self._take_committed,
            Regrouped: self._take_regrouped,
            RolledBack: self._take_rolled_back,
            RunStarted: self._take_started,
            Recovered: self._take_recovered,
            Died: self._take_died,
            Ended: self._take_ended,
        }

    def is_repeated(self, source: str, launch: int, kind: str, body_json: str) -> bool:
        """Whether this is a relaunched coordinator reading out of its log what an earlier launch told already.

        `Durable` is not in the log, and once `Recovered` is told nothing more is read out.
        """
        if source != COORDINATOR or kind == "Durable":
            return False
        first = self._told.setdefault(hash((kind, body_json)), launch)
        return first < launch and launch not in self._recovered

    def take(self, entry: Entry) -> None:
        """Take one fact that is not repeated."""
        taker = self._takers.get(type(entry.fact))
        if taker is not None:
            taker(entry)

    def finish(self) -> None:
        """Nothing more comes: what is incomplete is as complete as it will ever be. Void steps are let go."""
        valid = {(lineage.index, number) for lineage, number in self.valid_steps()}
        for key in sorted(self._incomplete):
            if key in valid:
                self._complete(self._incomplete[key])

    # ------------------------------------------------------------ the coordinator's facts

    def _take_started(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, RunStarted)
        if self.started is not None:
            self.trouble.append("the run was started twice")
            return
        try:
            config, sampler = decode_object(fact.config_json), decode_object(fact.sampler_json)
        except (ValueError, RecursionError) as error:
            self.trouble.append(f"the run's configuration, or the state of its sampler, cannot be read: {error}")
            return
        permutations = Permutations(sampler)
        if not 0 <= permutations.sample_count <= self.samples_max:
            self.trouble.append(f"the sampler deals {permutations.sample_count} samples; there are {self.samples_max}")
            return
        self.started, self.config, self.sampler, self.permutations = fact, config, sampler, permutations
        first = Lineage(0, fact.step, -1, None, fact.step)
        self.lineages.append(first)
        if fact.parameters is None or fact.velocity is None:
            self.trouble.append("the state that the run started from was not recorded")
            return
        self._begin(first, ReplayedState.of(fact.parameters, fact.velocity))
        self._advance()

    def _take_regrouped(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Regrouped)
        self.members[fact.generation] = dict(fact.members)
        self.generation = max(self.generation, fact.generation)

    def _take_opened(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Opened)
        self._opened = entry.fact

    def _take_closed(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Closed)
        self._closed = entry.fact

    def _take_committed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Committed)
        if not self.lineages:
            self.trouble.append(f"step {fact.step} was committed before the run was started")
            return
        lineage = self.lineages[-1]
        if fact.step <= lineage.head:
            return  # a second commit of a step: step monotonicity says so
        closed = self._closed if self._closed is not None and self._closed.step == fact.step else None
        opened = self._opened if self._opened is not None and self._opened.step == fact.step else None
        lineage.steps[fact.step] = Step(lineage, fact.step, entry, fact, opened, closed)
        lineage.head = fact.step
        lineage.ids[fact.step] = (fact.epoch, packed_ids(fact.sample_ids))
        self._advance()

    def _take_rolled_back(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, RolledBack)
        if not self.lineages:
            self.trouble.append("a rollback before the run was started")
            return
        parent = self.lineages[-1]
        self.lineages.append(Lineage(parent.index + 1, fact.to_step, fact.generation, parent, fact.to_step))
        self._advance()

    def _take_recovered(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Recovered)
        if entry.fact.incarnation == entry.launch:
            self._recovered.add(entry.launch)

    def _take_died(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Died)
        self.dead.add((entry.fact.worker, entry.fact.incarnation))

    def _take_ended(self, entry: Entry) -> None:
        assert isinstance(entry.fact, Ended)
        self.excused = {name: why for name, why in entry.fact.excused.items() if why}

    # ------------------------------------------------------------ the workers' facts

    def _take_reduced(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Reduced)
        if fact.value is None or self._is_past(fact.step, fact.generation, fact):
            return
        if self._reduced_bytes + fact.value.nbytes > WAITING_BYTES_MAX:
            if not self._full:
                self.trouble.append(f"too many reduced values wait for an earlier one: step {fact.step} was let go")
            self._full = True
            return
        waiting = self._reduced.setdefault(fact.step, [])
        key = (fact.digest, fact.attempt, fact.generation)
        if any((other.digest, other.attempt, other.generation) == key for other in waiting):
            return  # the same value from another holder
        waiting.append(fact)
        self._reduced_bytes += fact.value.nbytes
        self._advance()

    def _take_contributed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Contributed)
        self._latest[fact.worker, fact.incarnation] = _Latest(entry.launch, fact.generation, fact.step - 1)
        if not self._is_past(fact.step, fact.generation, fact):
            self._contributed.setdefault(fact.step, []).append(fact)

    def _take_state_applied(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, StateApplied)
        self._latest[fact.worker, fact.incarnation] = _Latest(entry.launch, fact.generation, fact.step)

    def _is_past(self, step: int, generation: int, fact: Reduced | Contributed) -> bool:
        """Whether the step that the fact is about is replayed; if so, what is still open of it takes the fact."""
        lineage = self.lineage_of(step, generation)
        if lineage is None or generation > self.generation or step > lineage.replayed:
            return False
        waiting = self._incomplete.get((lineage.index, step))
        if waiting is not None:
            if isinstance(fact, Contributed):
                self._offer(waiting, fact)
            elif waiting.reduced is None and self._certifies(fact, waiting):
                waiting.reduced = fact
            if waiting.complete:
                self._complete(waiting)
        return True

    # ------------------------------------------------------------ replay

    def _begin(self, lineage: Lineage, state: ReplayedState) -> None:
        lineage.state = state
        lineage.replayed = lineage.start
        lineage.keep_digests(lineage.start, state.digests)
        lineage.snapshots[lineage.start] = state

    def _advance(self) -> None:
        """Replay as far as the evidence goes, lineage after lineage."""
        while self._active < len(self.lineages):
            lineage = self.lineages[self._active]
            child = self.lineages[self._active + 1] if self._active + 1 < len(self.lineages) else None
            while child is None or lineage.replayed < child.start:
                if not self._replay_next(lineage):
                    return
            state = lineage.state if lineage.replayed == child.start else self._snapshot(lineage, child.start)
            if state is None:
                self.trouble.append(f"the state after step {child.start}, to which was rolled back, is no longer held")
                return
            self._begin(child, state)
            self._active += 1

    @staticmethod
    def _snapshot(lineage: Lineage, step: int) -> ReplayedState | None:
        at: Lineage | None = lineage
        while at is not None:
            if step >= at.start:
                return at.snapshots.get(step)
            at = at.parent
        return None

    def _replay_next(self, lineage: Lineage) -> bool:
        step = lineage.steps.get(lineage.replayed + 1)
        before = lineage.state
        if step is None or before is None:
            return False
        step.reduced = next(
            (reduced for reduced in self._reduced.get(step.number, ()) if self._certifies(reduced, step)), None
        )
        if step.committed.skip:
            after = before
        elif step.reduced is None or step.reduced.value is None:
            return False
        else:
            optimizer = self.config["optimizer"]
            after = replay_step(before, step.reduced.value, optimizer["learning_rate"], optimizer["momentum"])
        del lineage.steps[step.number]
        step.before, step.after = before, after
        lineage.state, lineage.replayed = after, step.number
        lineage.keep_digests(step.number, after.digests)
        self._keep_snapshot(lineage, step.number, after)
        self._incomplete[lineage.index, step.number] = step
        self._gather(step)
        self._on_replayed(step)
        if step.complete:
            self._complete(step)
        else:
            self._bound_incomplete()
        return True

    @staticmethod
    def _certifies(reduced: Reduced, step: Step) -> bool:
        """Whether this is the recorded value that the commit names, shown by its own bits."""
        committed = step.committed
        if reduced.attempt != committed.attempt or reduced.digest != committed.reduced_digest:
            return False
        return reduced.value is not None and digest_of(reduced.value) == reduced.digest

    def _keep_snapshot(self, lineage: Lineage, number: int, state: ReplayedState) -> None:
        if number % self.config["checkpoint_every"] and number != self.config["steps"]:
            return
        lineage.snapshots[number] = state
        if len(lineage.snapshots) > self.config["checkpoint_keep"] + 3:
            del lineage.snapshots[min(lineage.snapshots)]

    # ------------------------------------------------------------ what belongs to a replayed step

    def _gather(self, step: Step) -> None:
        """Take what waited for this step; keep what a later generation said about a step of this number."""
        generation = step.committed.generation
        later_values = []
        for reduced in self._reduced.pop(step.number, ()):
            if reduced.generation > generation:  # also the one that served: a step made again has the same value
                later_values.append(reduced)
            elif reduced.value is not None:
                self._reduced_bytes -= reduced.value.nbytes
        if later_values:
            self._reduced[step.number] = later_values
        later = []
        for contributed in self._contributed.pop(step.number, ()):
            if contributed.generation > generation:
                later.append(contributed)
            else:
                self._offer(step, contributed)
        if later:
            self._contributed[step.number] = later

    @staticmethod
    def _offer(step: Step, contributed: Contributed) -> None:
        """Keep the contribution if the commit names it."""
        committed = step.committed
        for (worker, incarnation, _), digest in zip(committed.contributors, committed.digests, strict=False):
            if worker == contributed.worker and incarnation == contributed.incarnation and digest == contributed.digest:
                step.contributions.setdefault(worker, contributed)

    def _complete(self, step: Step) -> None:
        del self._incomplete[step.lineage.index, step.number]
        self._on_complete(step)

    def _bound_incomplete(self) -> None:
        first = next(iter(self._incomplete.values()))
        assert first.before is not None
        held = len(self._incomplete) * (first.before.parameters.nbytes + first.before.velocity.nbytes)
        if held > INCOMPLETE_BYTES_MAX and len(self._incomplete) > 1:
            self._complete(first)

    # ------------------------------------------------------------ asking

    def may_lack_records(self, worker: int, incarnation: int, generation: int, step: int) -> bool:
        """Whether what this member recorded before it held the state after `step` may be missing without any fault.

        A death, or an excuse for its process, excuses what it recorded last, and nothing that it recorded before
        something that is there. `generation` is one under which the step was made.
        """
        role, latest = worker_role(worker), self._latest.get((worker, incarnation))
        if latest is None:
            return (worker, incarnation) in self.dead or any(name.startswith(f"{role}/") for name in self.excused)
        if latest.generation >= generation and latest.step >= step:
            return False
        return (worker, incarnation) in self.dead or f"{role}/{latest.launch}" in self.excused

    @property
    def may_lack_decisions(self) -> bool:
        """Whether decisions may be missing without any fault: the coordinator died, and did not read its log again."""
        newest = max(self._recovered, default=0)
        places = [name.rpartition("/") for name in self.excused]
        return any(role == COORDINATOR and int(launch) >= newest for role, _, launch in places)

    def lineage_of(self, step: int, generation: int) -> Lineage | None:
        """The lineage that a fact about `step` under `generation` belongs to."""
        if not self.lineages:
            return None
        found: Lineage | None = self.lineages[-1]
        while found is not None and (generation <= found.above or step < found.start):
            found = found.parent
        return found

    def lineages_with(self, step: int) -> Iterator[Lineage]:
        """Every lineage that has (had) a state after `step`, the newest first."""
        return (lineage for lineage in reversed(self.lineages) if lineage.start <= step <= lineage.head)

    def valid_steps(self) -> list[tuple[Lineage, int]]:
        """The committed steps that no rollback made void, ascending."""
        found: list[tuple[Lineage, int]] = []
        lineage = self.lineages[-1] if self.lineages else None
        top: int | None = None
        while lineage is not None:
            found += [(lineage, number) for number in lineage.ids if top is None or number <= top]
            top = lineage.start if top is None else min(top, lineage.start)
            lineage = lineage.parent
        return sorted(found, key=lambda item: item[1])

    def sampler_state(self, lineage: Lineage, step: int) -> Json:
        """The sampler state after `step`, worked out from the commits alone. O(samples)."""
        assert self.permutations is not None
        epoch: int | None = None
        committed: set[int] = set()
        for step_epoch, ids in self._backwards(lineage, step):
            if epoch is not None and step_epoch != epoch:
                break
            epoch = step_epoch
            committed.update(ids)
        else:
            if epoch is None or epoch == self.sampler["epoch"]:
                epoch = self.sampler["epoch"]
                committed.update(self.sampler["committed"])
        assert epoch is not None
        if len(committed) >= self.permutations.sample_count:
            epoch, committed = epoch + 1, set()
        before, after = self.permutations.states(epoch)
        return {
            "sample_count": self.permutations.sample_count,
            "seed": self.permutations.seed,
            "epoch": epoch,
            "committed": sorted(committed),
            "generator_at_epoch": before,
            "generator": after,
        }

    @staticmethod
    def _backwards(lineage: Lineage, step: int) -> Iterator[tuple[int, array[int]]]:
        """(epoch, ids) of `step` and the steps before it, down to the start of the run."""
        at: Lineage | None = lineage
        while at is not None:
            yield from (at.ids[number] for number in reversed(at.ids) if number <= step)  # they were put in ascending
            step = min(step, at.start)
            at = at.parent
