"""Checkpoint fidelity: every state that is saved, published or resumed from is the replayed state of its step.

Parameters and velocity are compared by digest with the replay, the sampler state (committed set, generator states) with
what the commits alone lead to. The state that a run goes on from must be the one that the driver read in the checkpoint
(`Expectation.promises["resumed_…"]`). A run resumed from such a checkpoint therefore goes on bit by bit like the
uninterrupted one, which the replay of its further steps then shows.
"""

from __future__ import annotations

import hashlib
import json
import re
from dataclasses import dataclass
from typing import Any

from services.epochs import Permutations
from services.invariants.base import Invariant
from services.ledger import Ledger
from services.lineage import COORDINATOR, Entry, Lineage, Step, worker_role
from services.records import CheckpointWritten, Expectation, Published, RolledBack, RunStarted
from services.replay import digest_of

_RESUMED = "resumed_"
_NAME = re.compile(r"ckpt-(\d+)-g(\d+)-i(\d+)")


@dataclass(frozen=True, slots=True)
class _Saved:
    """A saved state that waits to be compared."""

    step: int
    generation: int
    role: str
    what: str
    digests: tuple[str, str]
    sampler_json: str
    seq: int


class CheckpointFidelity(Invariant):
    name = "checkpoint fidelity"
    holds_when = "what is saved, published and resumed from reproduces the uninterrupted run bitwise"
    watches = (RunStarted, CheckpointWritten, Published, RolledBack, Expectation)

    def __init__(self, ledger: Ledger) -> None:
        super().__init__(ledger)
        self._waiting: dict[int, list[_Saved]] = {}
        self._began: tuple[Entry, RunStarted] | None = None
        self._resumed: dict[str, str | int | float] = {}  # what the driver read of the checkpoint to go on from
        self._right: tuple[int, int, str] = (-1, -1, "")  # lineage, step, sampler state that was found right last

    def on_fact(self, entry: Entry) -> None:
        fact = entry.fact
        if isinstance(fact, RunStarted):
            self._start(entry, fact)
            self._began = (entry, fact)
            self._compare_resumed()
            return
        if isinstance(fact, Expectation):
            self._resumed = {name: value for name, value in fact.promises.items() if name.startswith(_RESUMED)}
            self._compare_resumed()
            return
        assert isinstance(fact, CheckpointWritten | Published | RolledBack)
        digests = (fact.parameters_digest, fact.velocity_digest)
        named = _NAME.fullmatch(fact.name)
        if named is None:
            self.cannot_say(f"{fact.name!r} is no checkpoint's name")
            return
        step, generation, incarnation = map(int, named.groups())
        if isinstance(fact, RolledBack):
            role, what, told = COORDINATOR, f"the state rolled back to, {fact.name},", fact.to_step
        elif isinstance(fact, Published):
            role, what, told = COORDINATOR, f"the published checkpoint {fact.name}", fact.step
        else:
            role, what, told = worker_role(fact.worker), f"the checkpoint {fact.name}", fact.step
        if told != step or (not isinstance(fact, RolledBack) and incarnation != fact.incarnation):
            self.violated(told, role, f"{what} bears the name of another step or incarnation", entry.seq)
        self._compare_or_wait(_Saved(told, generation, role, what, digests, fact.sampler_json, entry.seq))

    def on_replayed(self, step: Step) -> None:
        if step.number in self._waiting:
            self._retry(step.number, final=False)

    def finish(self) -> None:
        for step in sorted(self._waiting):
            self._retry(step, final=True)
            for saved in self._waiting.get(step, ()):
                self.cannot_say(f"{saved.what}: the state after step {step} could not be replayed")

    # ------------------------------------------------------------ inside

    def _start(self, entry: Entry, fact: RunStarted) -> None:
        for name, array, digest in (
            ("parameters", fact.parameters, fact.parameters_digest),
            ("velocity", fact.velocity, fact.velocity_digest),
        ):
            if array is not None:
                self.checks += 1
                if digest_of(array) != digest:
                    what = f"the {name} that the run starts from do not have the digest that was told"
                    self.violated(fact.step, COORDINATOR, what, entry.seq)
        self.checks += 1
        told = self.ledger.sampler
        if Permutations(told).states(told["epoch"])[1] != told["generator"]:
            what = "drawing the epoch again does not lead to the generator state that the run starts from"
            self.violated(fact.step, COORDINATOR, what, entry.seq)

    def _compare_resumed(self) -> None:
        """The driver tells before the coordinator starts, but their facts may arrive in either order."""
        if self._began is None or not self._resumed:
            return
        entry, fact = self._began
        sampler = json.dumps(self.ledger.sampler, sort_keys=True, separators=(",", ":"))
        own: dict[str, str | int | float] = {
            "step": fact.step,
            "parameters": fact.parameters_digest,
            "velocity": fact.velocity_digest,
            "sampler": hashlib.sha256(sampler.encode()).hexdigest(),
        }
        self.checks += 1
        for name in sorted(own):
            if own[name] != self._resumed.get(f"{_RESUMED}{name}"):
                what = f"the run goes on from another {name} than the checkpoint holds"
                self.violated(fact.step, COORDINATOR, what, entry.seq)

    def _compare_or_wait(self, saved: _Saved) -> None:
        if not self._compare(saved, final=False):
            self._waiting.setdefault(saved.step, []).append(saved)

    def _retry(self, step: int, final: bool) -> None:
        left = [saved for saved in self._waiting.pop(step) if not self._compare(saved, final)]
        if left:
            self._waiting[step] = left

    def _compare(self, saved: _Saved, final: bool) -> bool:
        """False when the state of that step is not replayed yet, or may belong to a lineage to come."""
        lineage = self.ledger.lineage_of(saved.step, saved.generation)
        if lineage is None or (saved.generation > self.ledger.generation and not final):
            return False
        if saved.step > lineage.replayed:
            return False
        self.checks += 1
        replayed = lineage.digests(saved.step)
        if saved.digests != replayed:
            wrong = "parameters" if saved.digests[0] != replayed[0] else "velocity"
            self.violated(saved.step, saved.role, f"the {wrong} of {saved.what} are not those of the replay", saved.seq)
        wrong = self._sampler_mistake(saved, lineage)
        if wrong:
            self.violated(saved.step, saved.role, f"the sampler state of {saved.what} is wrong: {wrong}", saved.seq)
        return True

    def _sampler_mistake(self, saved: _Saved, lineage: Lineage) -> str:
        key = (lineage.index, saved.step, saved.sampler_json)
        if key == self._right:
            return ""  # written and published are the same text
        own = self.ledger.sampler_state(lineage, saved.step)
        try:
            told: Any = json.loads(saved.sampler_json)
        except ValueError:
            return "it is not JSON"
        if told == own:
            self._right = key
            return ""
        if not isinstance(told, dict) or set(told) != set(own):
            return "it does not have the fields of a sampler state"
        return ", ".join(f"{name} differs" for name in sorted(own) if told[name] != own[name])
