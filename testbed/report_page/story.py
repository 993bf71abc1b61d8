"""What a run's page shows, read from its saved history: steps in order, who took part in each, and what happened.

Only the lineage that stands is told: a step that was rolled back and made again appears as it was made last.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from pathlib import Path

from services.events import shard_name, worker_name
from services.records import (
    Admitted,
    Committed,
    Died,
    Fact,
    FaultActed,
    FaultMissed,
    FaultUndone,
    Finished,
    Healed,
    Opened,
    Recovered,
    Refused,
    Regrouped,
    RolledBack,
    ShardsCommitted,
    ShardsRolledBack,
    Stale,
)
from testbed.history_facts import read_facts
from testbed.run_state import describe

WORKER_ID = re.compile(r"[0-9]{1,18}")
TOOK_PART, LEFT_OUT = "took part", "no part"
_STEPS = (Opened, Committed, RolledBack, ShardsCommitted, ShardsRolledBack)
_EVENTS = (Admitted, Died, FaultActed, FaultMissed, FaultUndone, Finished, Healed, Recovered, Refused, Regrouped, Stale)


@dataclass(frozen=True, slots=True)
class Step:
    """One committed step. `members` maps each member's name to TOOK_PART or LEFT_OUT."""

    step: int
    generation: int
    attempts: int
    loss: float
    samples: int | None  # of data-parallel training
    skipped: bool
    members: dict[str, str]


@dataclass(frozen=True, slots=True)
class Event:
    """Something that happened, by the verifier's clock, while `after_step` was the last committed step."""

    at_ms: float
    after_step: int
    what: str
    faulty: bool  # a fault acted


@dataclass(slots=True)
class Story:
    """The whole of it."""

    steps: dict[int, Step] = field(default_factory=dict)
    events: list[Event] = field(default_factory=list)

    def rows(self) -> list[Step]:
        """The committed steps that stand, in order."""
        return [self.steps[number] for number in sorted(self.steps)]

    def names(self) -> list[str]:
        """Everybody who was ever a member, in order of number."""
        seen = {name for step in self.steps.values() for name in step.members}
        return sorted(seen, key=lambda name: (name.rpartition("-")[0], int(name.rpartition("-")[2])))


def read_story(history: Path, sharded: bool) -> Story:
    """The story of the history at this path; empty when there is none."""
    story = Story()
    dealt: dict[int, tuple[str, ...]] = {}
    for told in read_facts(history, (*_STEPS, *_EVENTS)):
        _take_step(story, dealt, told.fact)
        what = describe(told.source, told.fact, sharded)
        if what:
            last = max(story.steps, default=0)
            story.events.append(Event(told.at_ms, last, what, isinstance(told.fact, FaultActed)))
    return story


def _take_step(story: Story, dealt: dict[int, tuple[str, ...]], fact: Fact) -> None:
    match fact:
        case Opened():
            dealt[fact.step] = tuple(f"worker-{worker}" for worker in fact.deals if WORKER_ID.fullmatch(worker))
        case Committed():
            took_part = {worker_name(worker) for worker, *_ in fact.contributors}
            everybody = (*dealt.get(fact.step, ()), *took_part)
            members = {name: TOOK_PART if name in took_part else LEFT_OUT for name in everybody}
            story.steps[fact.step] = Step(
                fact.step, fact.generation, fact.attempt + 1, fact.loss, fact.total, fact.skip, members
            )
        case ShardsCommitted():
            members = {shard_name(shard): TOOK_PART for shard, *_ in fact.prepared}
            story.steps[fact.step] = Step(
                fact.step, fact.generation, fact.attempt + 1, fact.loss, None, False, members
            )  # fmt: skip
        case RolledBack() | ShardsRolledBack():
            for step in [step for step in story.steps if step > fact.to_step]:
                del story.steps[step]
