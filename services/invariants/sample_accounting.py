"""Sample accounting: deals are disjoint and cover what remains; a finished epoch committed each id exactly once.

The bookkeeping is the verifier's own (`services.epochs`): from the seed, and from nothing but the commits. Every deal
is worked out and compared id by id, every commit takes its ids from what remains.
"""

from __future__ import annotations

from typing import Any

from services.epochs import Deck, fresh_generator
from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, worker_role
from services.records import Committed, Opened, RolledBack, RunStarted

NAMED_MAX = 10


class SampleAccounting(Invariant):
    name = "sample accounting"
    holds_when = (
        "deals are disjoint and cover what remains of the epoch; a finished epoch committed each id exactly once,"
        " re-sharding included"
    )
    watches = (RunStarted, Opened, Committed, RolledBack)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.epochs = 0
        self.committed = 0
        self.lost: list[int] = []
        self.repeated: list[int] = []
        self._deck: Deck | None = None
        self._epochs_at: dict[int, int] = {}  # step -> epochs finished by it, for a rollback
        self._committed_at: dict[int, int] = {}

    def on_fact(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, RunStarted):
            self._start(entry, fact)
        elif self._deck is None:
            self.cannot_say("the run's sampler state was not recorded")
        elif isinstance(fact, Opened):
            self._deal(entry, fact, self._deck)
        elif isinstance(fact, Committed):
            self._commit(entry, fact, self._deck)
        elif isinstance(fact, RolledBack):
            self._roll_back(fact)

    def document(self) -> dict[str, Any]:
        return {**super().document(), "lost": self.lost[:NAMED_MAX], "repeated": self.repeated[:NAMED_MAX]}

    def samples(self) -> dict[str, int]:
        """The run's totals."""
        return {
            "epochs": self.epochs,
            "committed": self.committed,
            "lost": len(self.lost),
            "repeated": len(self.repeated),
        }

    # ------------------------------------------------------------ inside

    def _start(self, entry: Entry, fact: RunStarted) -> None:
        sampler, permutations = self.ledger.sampler, self.ledger.permutations
        assert permutations is not None
        self._deck = Deck(permutations, sampler)
        self._epochs_at[fact.step] = self._committed_at[fact.step] = 0
        count = self.ledger.config["sample_count"]
        if sampler["sample_count"] != count:
            self.violated(
                fact.step, COORDINATOR, f"the sampler deals {sampler['sample_count']} samples of {count}", entry.seq
            )
        if not fact.resumed_from:
            self.checks += 1
            fresh = (sampler["epoch"], sampler["committed"], sampler["generator_at_epoch"])
            if fresh != (0, [], fresh_generator(sampler["seed"])):
                self.violated(
                    fact.step, COORDINATOR, "a fresh run does not start from its seed's first epoch", entry.seq
                )

    def _deal(self, entry: Entry, fact: Opened, deck: Deck) -> None:
        self.checks += 1
        self._turn_epoch(entry, fact.step, fact.epoch, deck)
        batch = self.ledger.config["batch"]
        members = sorted(map(int, fact.deals))
        known = self.ledger.members.get(fact.generation)
        if known is not None and members != sorted(known):
            what = f"dealt to workers {members}, members are {sorted(known)}"
            self.violated(fact.step, COORDINATOR, what, entry.seq)
        if fact.remaining != deck.remaining_count:
            what = f"{fact.remaining} samples are said to remain, {deck.remaining_count} do"
            self.violated(fact.step, COORDINATOR, what, entry.seq)
        due = deck.deal(members, batch["mode"], batch["size"])
        for member in members:
            dealt = fact.deals[str(member)]
            if dealt != due[member]:
                what = f"worker {member} was dealt {_few(dealt)} where {_few(due[member])} were due"
                self.violated(fact.step, worker_role(member), what, entry.seq)

    def _commit(self, entry: Entry, fact: Committed, deck: Deck) -> None:
        self.checks += 1
        self._turn_epoch(entry, fact.step, fact.epoch, deck)
        ids = [sample for part in fact.sample_ids for sample in part]
        before = deck.epoch
        wrong = deck.commit(ids)
        self.committed += len(ids) - len(wrong)
        if wrong:
            self.repeated += wrong
            what = f"ids {_few(wrong)} were committed again, or are no samples, in epoch {before}"
            self.violated(fact.step, COORDINATOR, what, entry.seq)
        if deck.epoch != before:
            self.epochs += 1
        self._epochs_at[fact.step], self._committed_at[fact.step] = self.epochs, self.committed

    def _turn_epoch(self, entry: Entry, step: int, epoch: int, deck: Deck) -> None:
        """Epochs follow one another; one that is left before its end loses what remains of it."""
        if epoch == deck.epoch:
            return
        if epoch < deck.epoch:
            self.violated(step, COORDINATOR, f"epoch {epoch} goes on after epoch {deck.epoch} has begun", entry.seq)
            return
        lost = deck.abandon(deck.epoch + 1)
        self.lost += lost
        what = f"epoch {epoch} begins although ids {_few(lost)} of epoch {deck.epoch - 1} were not committed"
        self.violated(step, COORDINATOR, what, entry.seq)

    def _roll_back(self, fact: RolledBack) -> None:
        permutations = self.ledger.permutations
        assert permutations is not None
        lineage = self.ledger.lineages[-1]
        self._deck = Deck(permutations, self.ledger.sampler_state(lineage, fact.to_step))
        self.epochs = self._epochs_at.get(fact.to_step, self.epochs)
        self.committed = self._committed_at.get(fact.to_step, self.committed)


def _few(ids: list[int] | tuple[int, ...]) -> str:
    """The ids, or the first of many."""
    listed = ", ".join(map(str, ids[:NAMED_MAX]))
    return f"[{listed}]" if len(ids) <= NAMED_MAX else f"[{listed}, … {len(ids)} in all]"
