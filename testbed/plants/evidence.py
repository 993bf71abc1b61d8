"""Bugs of the verifier's own side: evidence that does not arrive, and a reference or a checker that is wrong."""

from __future__ import annotations

from typing import Any

import autograd.numpy as anp

from services import ledger, reference
from services.events import Effect, Record
from services.invariants.replica_agreement import ReplicaAgreement
from services.lineage import Entry
from services.messages import Array, Report
from services.records import Contributed, Reduced, StepApplied
from services.replay import ReplayedState, replay_step
from services.roles.record_intake import RecordIntake
from services.roles.worker import Worker
from testbed.plants.registry import UNKNOWN, Patch, memory, plant


def _withheld(kind: type) -> list[Patch]:
    """Workers do not report facts of this kind."""
    original = Worker.handle

    def handle(self: Worker, now_ms: float, event: Any) -> list[Effect]:
        effects = original(self, now_ms, event)
        return [one for one in effects if not (isinstance(one, Record) and isinstance(one.fact, kind))]

    return [(Worker, "handle", handle)]


@plant("evidence-withheld", expected=UNKNOWN)
def evidence_withheld() -> list[Patch]:
    """Nobody reports the reduced values, not even when asked."""
    return _withheld(Reduced)


@plant("contributions-withheld", expected=UNKNOWN)
def contributions_withheld() -> list[Patch]:
    """Nobody reports what it contributed."""
    return _withheld(Contributed)


@plant("record-lost", expected=UNKNOWN)
def record_lost() -> list[Patch]:
    """The verifier loses the tenth record of worker 2 and acknowledges it all the same."""
    original = RecordIntake.take

    def take(self: RecordIntake, now_ms: float, report: Report) -> tuple[list[Any], bool]:
        lines, gap = original(self, now_ms, report)
        lost = [line for line in lines if line.source == "worker-2" and line.number == 10]
        if not lost or memory(self).get("lost"):
            return lines, gap
        memory(self)["lost"] = True
        self.lines -= 1
        kept = [line for line in lines if line not in lost]
        first = lost[0].seq
        return [line if line.seq < first else _renumbered(line) for line in kept], gap

    return [(RecordIntake, "take", take)]


def _renumbered(line: Any) -> Any:
    return type(line)(
        line.seq - 1, line.at_ms, line.source, line.launch, line.number, line.kind, line.body_json, line.arrays
    )


@plant("checker-breaks", expected=UNKNOWN)
def checker_breaks() -> list[Patch]:
    """The checker of replica agreement raises an exception at step 5."""
    original = ReplicaAgreement.on_fact

    def on_fact(self: ReplicaAgreement, entry: Entry) -> None:
        original(self, entry)
        if isinstance(entry.fact, StepApplied) and entry.fact.step == 5:
            raise ZeroDivisionError("planted")

    return [(ReplicaAgreement, "on_fact", on_fact)]


@plant("reference-broken", invariant="gradient exactness")
def reference_broken() -> list[Patch]:
    """The verifier's own loss leaves out the label's term, so its gradients are wrong."""

    def loss_sum(parts: Any, x: Any, y: Any) -> Any:
        return anp.sum(anp.log(anp.sum(anp.exp(reference._logits(parts, x)), axis=-1)))

    return [(reference, "_loss_sum", loss_sum)]


@plant("replay-broken", invariant="gradient exactness")
def replay_broken() -> list[Patch]:
    """The verifier replays the optimizer without momentum."""

    def replay(before: ReplayedState, gradient: Array, learning_rate: float, momentum: float) -> ReplayedState:
        return replay_step(before, gradient, learning_rate, 0.0)

    return [(ledger, "replay_step", replay)]
