"""How a relaunched coordinator comes back: it reads its own decisions and stands where the dead one stood.

Every fact of the log is recorded again, since the dead process may have had records that the verifier never stored;
the verifier counts a fact that it already has once. Members of the last generation get one lease to link again;
whoever does not is dead. Then the generation is raised over those that did, and the open question, if any, is asked
again: an open step is collected on, a closed one gets another attempt, a committed one is told again.
"""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from services import decision_log
from services.events import Record, SetTimer
from services.jobs import State
from services.records import (
    Admitted,
    Closed,
    Committed,
    Fact,
    Opened,
    Published,
    Recovered,
    Regrouped,
    RolledBack,
    RunStarted,
)
from services.roles.peers import MEMBER, Peer
from services.roles.step_state import StepState
from services.sampling import sampler_from_json

if TYPE_CHECKING:
    from services.roles.coordinator import Coordinator


def recover(coordinator: Coordinator, facts: tuple[Fact, ...], torn: bool) -> None:
    """Fold the log into a fresh coordinator and let it go on. A torn last line is cut off the log first."""
    fold = _Fold(coordinator)
    for fact in facts:
        fold.take(fact)

    def clean() -> None:
        coordinator.starting_state(recorded)

    def recorded(state: State) -> None:
        coordinator._out.extend(Record(_whole(fact, state)) for fact in facts)
        _announce(coordinator, fold)

    if torn:
        coordinator._persist("log repaired", decision_log.begin_plan(facts), clean)
    else:
        clean()


def _whole(fact: Fact, start: State) -> Fact:
    """The log keeps no arrays, yet without the state that the run started from nobody can judge it."""
    if not isinstance(fact, RunStarted) or fact.parameters_digest != start.parameters_digest:
        return fact
    return replace(fact, parameters=start.parameters, velocity=start.velocity)


def _announce(coordinator: Coordinator, fold: _Fold) -> None:
    """Record the return, raise the generation over the members of old, and take up what was open."""
    undecided = coordinator.stage if coordinator.current is not None else ""
    fact = Recovered(coordinator.launch, coordinator.step, coordinator.generation, undecided)
    for worker, incarnation in fold.members:
        coordinator.peers.put(Peer(worker, incarnation, -1, "", MEMBER, coordinator._now, linked=False))
        coordinator._out.append(SetTimer(f"reconnect {worker} {incarnation}", coordinator.config.timing.lease_ms))
    coordinator.came_back = True
    go_on = coordinator._resume if fold.published else coordinator._begin_again
    coordinator._decide(
        f"recovery {coordinator.launch}", fact, lambda: coordinator._regroup("coordinator came back", go_on)
    )


class _Fold:
    """What the facts of a log add up to."""

    def __init__(self, coordinator: Coordinator) -> None:
        self.to = coordinator
        self.members: tuple[tuple[int, int], ...] = ()
        self.published = False

    def take(self, fact: Fact) -> None:
        to = self.to
        match fact:
            case RunStarted():
                to.sampler = sampler_from_json(fact.sampler_json)
                to.step = to.high_step = fact.step
                to.stage = "boundary"
                to.digests = (fact.parameters_digest, fact.velocity_digest)
            case Admitted():
                to.incarnations = max(to.incarnations, fact.incarnation)
            case Regrouped():
                self._regrouped(fact)
            case Opened():
                self._opened(fact)
            case Closed():
                self._closed(fact)
            case Committed():
                to.committed(fact)
            case Published():
                self.published = True
                to.step, to.current, to.stage = fact.step, None, "boundary"
                to.digests = (fact.parameters_digest, fact.velocity_digest)
            case RolledBack():
                to.sampler = sampler_from_json(fact.sampler_json)
                to.step, to.current, to.stage = fact.to_step, None, "boundary"
                to.digests = (fact.parameters_digest, fact.velocity_digest)
                self.members = ()  # what they held is void: they are let in again, with the state of `to_step`
            case _:
                pass

    def _regrouped(self, fact: Regrouped) -> None:
        newcomers = {worker for worker, incarnation in fact.members if (worker, incarnation) not in self.members}
        self.members = fact.members
        self.to.generation = fact.generation
        self.to.been_members.update(worker for worker, _ in fact.members)
        self.to.joined_as_expected.update(entry for entry in self.to._due() if entry[1] in newcomers)

    def _opened(self, fact: Opened) -> None:
        now = self.to.current
        if now is not None and now.committed is not None:
            self.to.step = now.committed.step  # opening a step shows that the one before was applied by all
        attempt = now.attempt if now is not None and now.opened.step == fact.step else 0
        self.to.stage = "collect"
        self.to.high_step = max(self.to.high_step, fact.step)
        self.to.current = StepState(fact, attempt=attempt)

    def _closed(self, fact: Closed) -> None:
        """The gradients' particulars died with the process: the same contributors are asked for their offers again."""
        now = self.to.current
        assert now is not None
        contributors = {worker for worker, _, _ in fact.contributors}
        now.attempt = fact.attempt + 1
        others = [int(worker) for worker in now.opened.deals if int(worker) not in contributors]
        now.left_out.update(dict.fromkeys(others, "left out by an earlier close"))
