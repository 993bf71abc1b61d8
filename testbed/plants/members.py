"""Bugs in who takes part: fences, incarnations, generations."""

from __future__ import annotations

from dataclasses import replace

from services.events import COORDINATOR, Record, Send, worker_id
from services.jobs import Gradient
from services.messages import CheckpointSaved, Join, Message, Open, Ready, Turned
from services.records import StepApplied
from services.roles.coordinator import Coordinator
from services.roles.peers import MEMBER, Peer
from services.roles.worker import Worker
from testbed.plants.registry import Patch, memory, plant
from training.checkpoint import checkpoint_name


@plant("fence-skipped", invariant="fencing", scenario="pause-past-lease")
def fence_skipped() -> list[Patch]:
    """A member that was declared dead comes back under its old incarnation, with its old state, and is let in."""
    open_step = Worker._open

    def refuse_stranger(self: Coordinator, source: str, incarnation: int, message: Message) -> None:
        if not source.startswith("worker-") or self.peers.get(worker_id(source)) is not None:
            return
        self.peers.put(Peer(worker_id(source), incarnation, 1, source, MEMBER, self._now))
        self._regroup(f"{source} is back", self._resume)

    def catch_up(self: Worker, message: Open) -> None:
        if self.state is not None and message.step > self.step + 1:
            self._gradient = self._computing = self._exchange = self._held = self._commit = None
            self.step = message.step - 1
        open_step(self, message)

    return [(Coordinator, "_refuse_stranger", refuse_stranger), (Worker, "_open", catch_up)]


@plant("dead-counted", invariant="fencing", scenario="kill-at-ready")
def dead_counted() -> list[Patch]:
    """A contributor that died before it was ready is counted all the same, since the others hold the value."""
    ready = Coordinator._ready

    def go_on(self: Coordinator, reason: str) -> None:
        memory(self)["died"] = True
        _commit_by_the_living(self)

    def heard(self: Coordinator, peer: Peer, message: Ready) -> None:
        ready(self, peer, message)
        if memory(self).get("died") and self.stage == "exchange":
            _commit_by_the_living(self)

    return [(Coordinator, "_try_again", go_on), (Coordinator, "_ready", heard)]


def _commit_by_the_living(coordinator: Coordinator) -> None:
    """Commit as soon as every contributor that lives is ready."""
    now = coordinator.current
    assert now is not None
    assert now.closed is not None
    alive = [worker for worker, _, _ in now.closed.contributors if coordinator.peers.member(worker) is not None]
    if all(worker in now.readies for worker in alive):
        memory(coordinator)["died"] = False
        coordinator._commit(now.closed, now.readies[alive[0]].reduced_digest, ())


@plant("dead-counts-as-applied", invariant="fencing", scenario="kill-at-applied")
def dead_counts_as_applied() -> list[Patch]:
    """A member that died before it said so counts as having applied the step."""
    lost, applied = Coordinator._member_lost, Coordinator._all_applied

    def remember(self: Coordinator, worker: int) -> None:
        members = dict(memory(self).get("incarnations", {}))
        memory(self)["dead"] = (worker, members.get(worker, 0))
        lost(self, worker)

    def with_the_dead(self: Coordinator) -> None:
        alive = {peer.worker: peer.incarnation for peer in self.peers.members()}
        memory(self)["incarnations"] = {**memory(self).get("incarnations", {}), **alive}
        start = len(self._out)
        applied(self)
        dead = memory(self).get("dead")
        for place, effect in enumerate(self._out[start:], start):
            if dead and isinstance(effect, Record) and isinstance(effect.fact, StepApplied):
                rows = (*effect.fact.applied, (*dead, *effect.fact.applied[0][2:]))
                self._out[place] = Record(replace(effect.fact, applied=rows))
                memory(self)["dead"] = None

    return [(Coordinator, "_member_lost", remember), (Coordinator, "_all_applied", with_the_dead)]


@plant("incarnation-reused", invariant="fencing", scenario="relaunch")
def incarnation_reused() -> list[Patch]:
    """A worker that is started again gets the incarnation that it had."""
    original = Coordinator._admit

    def admit(self: Coordinator, message: Join) -> None:
        given = memory(self).setdefault("given", {})
        highest, number = self.incarnations, message.worker
        if number in given:
            self.incarnations = given[number] - 1
        original(self, message)
        given[number] = self.incarnations
        self.incarnations = max(highest, self.incarnations)

    return [(Coordinator, "_admit", admit)]


@plant("generation-not-raised", invariant="step monotonicity", scenario="kill-at-open")
def generation_not_raised() -> list[Patch]:
    """The death of a member does not raise the generation."""
    original = Coordinator._regroup

    def regroup(self: Coordinator, reason: str, then: object) -> None:
        if "link broken" in reason or "lease ended" in reason:
            self.generation -= 1
        original(self, reason, then)  # type: ignore[arg-type]

    return [(Coordinator, "_regroup", regroup)]


@plant("zombie-checkpoint", invariant="fencing", scenario="pause-past-lease")
def zombie_checkpoint() -> list[Patch]:
    """A member that returns after its lease says that it has saved its state, and that is published."""
    turned, refuse = Worker._turned, Coordinator._refuse_stranger

    def save_first(self: Worker, message: Turned) -> None:
        if message.fenced and self.state is not None and not memory(self).get("saved"):
            memory(self)["saved"] = True
            name = checkpoint_name(self.step, self.generation, self.incarnation)
            digests = (self.state.parameters_digest, self.state.velocity_digest)
            self._now_out.append(Send(COORDINATOR, CheckpointSaved(self.generation, self.step, name, *digests)))
        turned(self, message)

    def publish(self: Coordinator, source: str, incarnation: int, message: Message) -> None:
        if isinstance(message, CheckpointSaved):
            self._publish(message.name, worker_id(source), incarnation, lambda: None)
        else:
            refuse(self, source, incarnation, message)

    return [(Worker, "_turned", save_first), (Coordinator, "_refuse_stranger", publish)]


@plant("stale-gradient-after-a-pause", invariant="gradient exactness", scenario="pause-past-lease")
def stale_gradient() -> list[Patch]:
    """A worker that comes back after its lease offers the gradient that it held when it was stopped."""
    reset, has = Worker._reset, Worker._has_gradient

    def keep(self: Worker) -> None:
        held: Gradient | None = getattr(self, "_gradient", None)
        if held is not None:
            memory(self)["held"] = held
        reset(self)

    def offer_old(self: Worker, gradient: Gradient) -> None:
        held: Gradient | None = memory(self).pop("held", None)
        has(self, gradient if held is None else replace(held, sample_ids=gradient.sample_ids))

    return [(Worker, "_reset", keep), (Worker, "_has_gradient", offer_old)]
