"""Contribution accounting: a commit counts exactly the contributions that it names, once each, in ascending id.

A contribution is (worker, incarnation, step, sample ids, digest). The commit must name those that were closed, with the
digests and sample ids that their workers recorded; the sum must have run in strictly ascending worker id; and where
all contributions of a step were recorded whole, (n_k / N) * g_k added from left to right must give the reduced value
bit by bit. When it does not, the likely mistake is looked for and named, and whose it is where that can be told. A sum
that nobody closed is no pass either, nor is a contribution that is named and was never recorded.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from services.invariants.base import Invariant
from services.invariants.gradient_exactness import replay_contributions
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, Step, same_bits, worker_role
from services.messages import Array
from services.records import Closed, Committed, Contributed, Reduced, Summed
from services.replay import digest_of, replay_sum

CLOSED_KEPT_MAX = 4096


class ContributionAccounting(Invariant):
    name = "contribution accounting"
    holds_when = (
        "each contribution that a commit names is counted exactly once, in the step that it names,"
        " added in ascending worker id; no other has an effect"
    )
    watches = (Closed, Committed, Contributed, Reduced, Summed)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._closed: dict[tuple[int, int, int], tuple[int, ...]] = {}  # (generation, step, attempt) -> worker ids
        self._summed: dict[tuple[int, int, int], list[tuple[str, tuple[int, ...], int]]] = {}
        self._oldest_closed = (0, 0, 0)  # of the attempts that are kept
        self._last_closed: Closed | None = None
        self._unseen: list[tuple[Committed, int, int]] = []  # (commit, worker, incarnation) named and never recorded
        self._told: dict[int, list[Contributed]] = {}  # by step, until it is complete; without the gradients
        self.handlers = {
            Closed: self._on_closed,
            Committed: self._on_committed,
            Contributed: self._on_contributed,
            Reduced: self._on_reduced,
            Summed: self._on_summed,
        }

    # ------------------------------------------------------------ what is told

    def _on_closed(self, entry: Entry) -> None:
        closed = entry.fact
        assert isinstance(closed, Closed)
        self._last_closed = closed
        workers = tuple(worker for worker, _, _ in closed.contributors)
        self._require_ascending(workers, closed.step, COORDINATOR, "the contributors of a close", entry.seq)
        if sum(count for _, _, count in closed.contributors) != closed.total:
            what = f"attempt {closed.attempt} is closed with N = {closed.total}, which is not the sum of its parts"
            self.violated(closed.step, COORDINATOR, what, entry.seq)
        key = (closed.generation, closed.step, closed.attempt)
        self._closed[key] = workers
        if len(self._closed) > CLOSED_KEPT_MAX:
            del self._closed[next(iter(self._closed))]
            self._oldest_closed = next(iter(self._closed))
        for role, order, seq in self._summed.pop(key, ()):
            self._require_order(role, order, workers, closed.step, seq)

    def _on_committed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Committed)
        self.checks += 1
        for what in _commit_mistakes(fact, self._last_closed):
            self.violated(fact.step, COORDINATOR, what, entry.seq)

    def _on_contributed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Contributed)
        self._told.setdefault(fact.step, []).append(replace(fact, gradient=None))
        if fact.gradient is not None:
            self._require_digest(entry, fact.worker, fact.step, fact.gradient, fact.digest, "its contribution")

    def _on_reduced(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Reduced)
        if fact.value is not None:
            self._require_digest(entry, fact.worker, fact.step, fact.value, fact.digest, "the reduced value")
        self._require_ascending(fact.order, fact.step, worker_role(fact.worker), "the order of the sum", entry.seq)

    def _on_summed(self, entry: Entry) -> None:
        fact = entry.fact
        assert isinstance(fact, Summed)
        self._require_ascending(fact.order, fact.step, fact.role, "the order of the sum", entry.seq)
        key = (fact.generation, fact.step, fact.attempt)
        if key in self._closed:
            self._require_order(fact.role, fact.order, self._closed[key], fact.step, entry.seq)
        else:
            self._summed.setdefault(key, []).append((fact.role, fact.order, entry.seq))

    def _require_digest(self, entry: Entry, worker: int, step: int, value: Array, digest: str, what: str) -> None:
        self.checks += 1
        if digest_of(value) != digest:
            self.violated(step, worker_role(worker), f"{what} does not have the digest that was told", entry.seq)

    def _require_ascending(self, workers: tuple[int, ...], step: int, role: str, what: str, seq: int) -> None:
        self.checks += 1
        if any(first >= second for first, second in pairwise(workers)):
            self.violated(step, role, f"{what} is {list(workers)}, not strictly ascending", seq)

    def _require_order(self, role: str, order: tuple[int, ...], closed: tuple[int, ...], step: int, seq: int) -> None:
        self.checks += 1
        if order != closed:
            self.violated(step, role, f"summed {list(order)} where {list(closed)} were closed", seq)

    # ------------------------------------------------------------ what was summed

    def on_complete(self, step: Step) -> None:
        committed = step.committed
        told = self._told_of(step)
        for place, (worker, incarnation, _) in enumerate(committed.contributors):
            contributed = step.contributions.get(worker)
            if contributed is None:
                key = (worker, incarnation, committed.sample_ids[place])
                self._miss(step, (worker, incarnation), [one.digest for one in told if _key_of(one) == key])
            elif contributed.sample_ids != committed.sample_ids[place]:
                what = "the commit counts other sample ids than those of its gradient"
                self.violated(step.number, worker_role(worker), what, step.entry.seq)
        if step.reduced is None or step.reduced.value is None:
            return
        named = tuple(worker for worker, _, _ in committed.contributors)
        self._require_order(worker_role(step.reduced.worker), step.reduced.order, named, step.number, step.entry.seq)
        if not step.whole:
            return
        self.checks += 1
        if not same_bits(replay_contributions(step), step.reduced.value):
            worker, what = _explained(step)
            self.violated(step.number, worker_role(worker), what, step.entry.seq)

    def _told_of(self, step: Step) -> list[Contributed]:
        """What was recorded of this step, and of no step of that number in a later lineage."""
        told = self._told.pop(step.number, [])
        later = [one for one in told if one.generation > step.committed.generation]
        if later:
            self._told[step.number] = later
        lineage_of = self.ledger.lineage_of
        return [one for one in told if lineage_of(step.number, one.generation) is step.lineage]

    def _miss(self, step: Step, member: tuple[int, int], digests: list[str]) -> None:
        """The contribution that the commit names was not recorded; `digests` are of others over the same samples."""
        if digests:
            what = f"the commit counts another gradient over these samples than it recorded, {digests[0][:12]}…"
            self.violated(step.number, worker_role(member[0]), what, step.entry.seq)
        else:
            self._unseen.append((step.committed, *member))

    def finish(self) -> None:
        for commit, worker, incarnation in self._unseen:
            if not self.ledger.may_lack_records(worker, incarnation, commit.generation, commit.step):
                role = worker_role(worker)
                self.cannot_say(f"step {commit.step} names a contribution of {role} that was never recorded")
        for key in sorted(self._summed):
            self._never_closed(key)

    def _never_closed(self, key: tuple[int, int, int]) -> None:
        """Sums of an attempt that nobody closed, as far as the coordinator's records are all here."""
        generation, step, attempt = key
        told = f"attempt {attempt} of step {step}, generation {generation}"
        for role, order, seq in self._summed[key]:
            if key < self._oldest_closed or self.ledger.may_lack_decisions:
                self.cannot_say(f"{role} summed {list(order)} in {told}; its close is not, or no longer, here")
            else:
                self.violated(step, role, f"summed {list(order)} in {told}, which was never closed", seq)


def _key_of(fact: Contributed) -> tuple[int, int, tuple[int, ...]]:
    return fact.worker, fact.incarnation, fact.sample_ids


def _commit_mistakes(fact: Committed, closed: Closed | None) -> Iterator[str]:
    workers = [worker for worker, _, _ in fact.contributors]
    if any(first >= second for first, second in pairwise(workers)):
        yield f"the commit names {workers}, not strictly ascending"
    if not len(fact.contributors) == len(fact.sample_ids) == len(fact.digests):
        yield "the commit's lists differ in length"
        return
    for (worker, _, count), ids in zip(fact.contributors, fact.sample_ids, strict=True):
        if count != len(ids) or count < 1:
            yield f"worker {worker} counts with {count} samples, its sample ids are {len(ids)}"
    if fact.total != sum(len(ids) for ids in fact.sample_ids):
        yield f"N = {fact.total}, the sample ids are {sum(len(ids) for ids in fact.sample_ids)}"
    if closed is None or (closed.step, closed.attempt) != (fact.step, fact.attempt):
        yield f"attempt {fact.attempt} was committed without having been closed"
    elif closed.contributors != fact.contributors:
        yield f"committed {list(fact.contributors)} where {list(closed.contributors)} were closed"


def _explained(step: Step) -> tuple[int, str]:
    """Which simple mistake gives the recorded value, if one does, and whose it is (else who recorded the value)."""
    assert step.reduced is not None
    assert step.reduced.value is not None
    value = step.reduced.value
    parts: list[tuple[int, int, Array]] = []
    for worker, _, count in step.committed.contributors:
        gradient = step.contributions[worker].gradient
        assert gradient is not None
        parts.append((worker, count, gradient))
    for what, total, chosen in _mistakes(parts, step.committed.total):
        if chosen and np.allclose(replay_sum(chosen, total), value, rtol=1e-9, atol=0.0):
            return step.reduced.worker, f"the reduced value is that of {what}"
    for worker, times in _weighed_otherwise(parts, step.committed.total, value):
        return worker, f"the reduced value counts what it contributed {times:.6g} times"
    return step.reduced.worker, "the reduced value is not the sum of the contributions that the commit names"


def _weighed_otherwise(parts: list[tuple[int, int, Array]], total: int, value: Array) -> Iterator[tuple[int, float]]:
    """Whose gradient explains, counted with another factor, all that the value differs from the sum by."""
    with np.errstate(all="ignore"):
        excess = value - replay_sum([(count, gradient) for _, count, gradient in parts], total)
        largest = float(np.abs(excess).max())
        for worker, count, gradient in parts:
            share = float((excess @ gradient) / (gradient @ gradient))  # NaN where it is all zeros
            if float(np.abs(excess - share * gradient).max()) <= 1e-9 * largest:
                yield worker, 1.0 + share * total / count


def _mistakes(parts: list[tuple[int, int, Array]], total: int) -> Iterator[tuple[str, int, list[tuple[int, Array]]]]:
    plain = [(count, gradient) for _, count, gradient in parts]
    yield "another order of the same sum", total, plain
    yield "a mean of means", len(parts), [(1, gradient) for _, _, gradient in parts]
    for place, (worker, count, _) in enumerate(parts):
        without = plain[:place] + plain[place + 1 :]
        yield f"a sum without worker {worker}", total, without
        yield f"a sum without worker {worker}, the rest re-weighted", total - count, without
        yield f"a sum that counts worker {worker} twice", total, [*plain[: place + 1], *plain[place:]]
