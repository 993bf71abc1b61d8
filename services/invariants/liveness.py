"""Liveness: once all faults are undone, steps commit again within the scenario's bound, and the run comes to its end.

After `Healed(bound_ms, clean_steps)` each of the next `clean_steps` commits must follow within `bound_ms` of the one
before (the first: of the healing), by the time at which the verifier heard of them. Steps above `Healed.step` that it
heard of before the healing, since it was away, followed within any bound. The run must then finish, or stop
by the condition that the scenario promised (`Expectation.promises["condition"]`). One that does not end, and of which
no step was heard for longer than the bound when the driver gave it up, stands still, which is a violation too.
"""

from __future__ import annotations

from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry
from services.records import Committed, Expectation, FaultActed, FaultMissed, Finished, Healed


class Liveness(Invariant):
    name = "liveness"
    holds_when = "once faults are undone, a step commits within the scenario's bound, and the run ends"
    watches = (Committed, Healed, Finished, Expectation, FaultActed, FaultMissed)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self.finished: Finished | None = None
        self._healed: Healed | None = None
        self._since_ms = 0.0
        self._clean = 0
        self._head = 0
        self._moved_ms = 0.0  # when the healing or the last step after it was heard of
        self._given_up_ms = 0.0  # when the driver last told that something did not come about
        self._condition = "finished"
        self._acted = False  # some fault did

    def on_fact(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, Healed):
            self._healed, self._since_ms, self._clean = fact, entry.at_ms, 0
            self._moved_ms = entry.at_ms
            if fact.step >= 0:
                self._clean = min(fact.clean_steps, max(0, self._head - fact.step))
                self.checks += self._clean
        elif isinstance(fact, Expectation):
            self._condition = str(fact.promises.get("condition", "finished"))
        elif isinstance(fact, Finished):
            self._on_finished(entry, fact)
        elif isinstance(fact, FaultMissed):
            self._given_up_ms = entry.at_ms
        elif isinstance(fact, FaultActed):
            self._acted = True
        elif isinstance(fact, Committed):
            self._head, self._moved_ms = fact.step, entry.at_ms
            if self._healed is not None and self._clean < self._healed.clean_steps:
                self._on_clean(entry, fact, self._healed)

    def finish(self) -> None:
        healed = self._healed
        if self.finished is None:
            still_ms = self._given_up_ms - self._moved_ms
            if healed is not None and still_ms > healed.bound_ms:
                what = f"nothing was committed for {still_ms:.0f} ms; the bound is {healed.bound_ms:.0f} ms"
                self.violated(self._head + 1, COORDINATOR, what)
            self.cannot_say("the run was not seen to end")
            return
        stopped = self.finished.condition != "finished"
        if healed is None and self._acted and not stopped:
            self.cannot_say("faults acted, and nobody told that all are undone: no step after that was seen")
        if healed is None or self._clean >= healed.clean_steps:
            return
        if stopped and self._condition == "finished":
            what = f"after the healing {self._clean} of {healed.clean_steps} steps were committed"
            self.violated(self._head, COORDINATOR, what)
        elif not stopped:
            self.cannot_say(
                f"the run ended {self._clean} steps after the healing, {healed.clean_steps} were to be seen"
            )

    # ------------------------------------------------------------ inside

    def _on_clean(self, entry: Entry, fact: Committed, healed: Healed) -> None:
        self.checks += 1
        waited_ms = entry.at_ms - self._since_ms
        if waited_ms > healed.bound_ms:
            what = f"step {fact.step} was committed after {waited_ms:.0f} ms; the bound is {healed.bound_ms:.0f} ms"
            self.violated(fact.step, COORDINATOR, what, entry.seq)
        self._since_ms = entry.at_ms
        self._clean += 1

    def _on_finished(self, entry: Entry, fact: Finished) -> None:
        self.finished = fact
        self.checks += 1
        if fact.condition == self._condition:
            if fact.condition == "finished" and fact.step < self.ledger.config.get("steps", 0):
                what = f"finished at step {fact.step} of {self.ledger.config['steps']}"
                self.violated(fact.step, COORDINATOR, what, entry.seq)
        elif self._condition != "finished":
            self.cannot_say(
                f"the scenario promises to stop by {self._condition!r}; the run ended by {fact.condition!r}"
            )
        else:
            when = "before the faults were undone" if self._healed is None else "unasked"
            self.cannot_say(f"the run stopped by {fact.condition!r} {when}: {fact.reason}")
