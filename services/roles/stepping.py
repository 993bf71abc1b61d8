"""One step of data-parallel training after the other, each decided durably before it is told.

A step: open -> offer -> close -> (reduce) -> ready -> commit -> applied, then perhaps a checkpoint. Stages:

    boundary    between steps; joiners are brought in (coordinator_core)
    collect     open told; offers come in until every member has offered, died or passed the deadline
    exchange    close told; contributors reduce; equal ready from all of them, or another attempt
    apply       commit told; everybody applies
    checkpoint  one member writes the state, then the pointer is published

What a death does depends on the stage alone: before `close` the member is out of the step; between `close` and the
commit the survivors try again without it; after the commit the step stands.
"""

from __future__ import annotations

from services.config import RunConfig
from services.events import (
    SERVER,
    CancelTimer,
    Note,
    Phase,
    Record,
    SetTimer,
)
from services.messages import (
    Applied,
    CheckpointSaved,
    Close,
    Commit,
    Message,
    Offer,
    Open,
    Ready,
    Share,
)
from services.records import (
    Closed,
    Committed,
    Opened,
    StepApplied,
)
from services.roles.peers import LOADED, Peer
from services.roles.replicas import Replicas
from services.roles.step_state import StepState
from training.models import parameter_count
from training.sampler import Sampler

MISMATCHED_ATTEMPTS_MAX = 5


class Stepping(Replicas):
    """The step of data-parallel training; see the module's docstring. `Coordinator` adds start and checkpoints."""

    def __init__(self, config: RunConfig, launch: int, dataset_blob: bytes) -> None:
        super().__init__(config, launch, dataset_blob)
        self.sampler = Sampler(config.sample_count, config.seed)
        self.current: StepState | None = None
        self.came_back = False  # from its log, with no timer running
        self._contributed: frozenset[int] = frozenset()  # workers that contributed to the step that was applied last
        self._elements = parameter_count(config.model)

    # ------------------------------------------------------------ to be added by the subclass

    def _ask_for_checkpoint(self) -> None:
        raise NotImplementedError

    def _checkpoint_saved(self, peer: Peer, saved: CheckpointSaved) -> None:
        raise NotImplementedError

    def _finish(self) -> None:
        raise NotImplementedError

    # ------------------------------------------------------------ open

    def _open_next(self) -> None:
        if self.step >= self.config.steps:
            self._finish()
            return
        self._given_up.clear()
        self._open(self.step + 1, 0)

    def _open(self, step: int, attempt: int) -> None:
        members = [peer.worker for peer in self.peers.members()]
        dealt = self.sampler.deal(members, self.config.batch)
        deals = {str(worker): ids for worker, ids in dealt.items()}
        opened = Opened(step, self.generation, self.sampler.epoch, deals, self.sampler.remaining_count)
        self.stage = "collect"
        self.current = StepState(opened, attempt=attempt)
        self.high_step = max(self.high_step, step)

        def durable() -> None:
            self._out.append(Phase("opened", step))
            for peer in self.peers.members():
                self._ask(peer)
            self._out.append(SetTimer("deadline", self.config.timing.deadline_ms))
            self._out.append(SetTimer("resend", self.config.timing.resend_ms))

        self._decide(f"open {step}", opened, durable)

    def _ask(self, peer: Peer) -> None:
        """Ask one member (again) for what it has not answered."""
        now = self.current
        if self.stage == "checkpoint":  # the step is over, and what is asked of the writer may be lost all the same
            if peer is self._writer():
                self._ask_for_checkpoint()
        elif now is None:
            return
        elif self.stage == "collect" and peer.worker not in now.offers:
            if now.may_offer(peer.worker):
                ids = now.opened.deals[str(peer.worker)]
                self._send(peer.name, Open(self.generation, now.opened.step, now.opened.epoch, ids))
        elif self.stage == "exchange" and peer.worker not in now.readies:
            self._send(peer.name, self._close_message())
        elif self.stage == "apply" and peer.worker not in now.applied:
            self._send(peer.name, self._commit_message())

    # ------------------------------------------------------------ messages of a step

    def _step_message(self, peer: Peer, message: Message) -> None:
        match message:
            case Offer():
                self._offer(peer, message)
            case Ready():
                self._ready(peer, message)
            case Applied():
                self._applied(peer, message)
            case CheckpointSaved():
                self._checkpoint_saved(peer, message)
            case _:
                self._refuse(peer.name, peer.incarnation, message, "contract")

    def _offer(self, peer: Peer, offer: Offer) -> None:
        now = self.current
        if now is None or offer.step != now.opened.step:
            self._refuse(peer.name, peer.incarnation, offer, "late")
        elif peer.worker in now.offers:
            same = now.offers[peer.worker].digest == offer.digest
            self._refuse(peer.name, peer.incarnation, offer, "duplicate" if same else "conflict")
        elif self.stage != "collect" or not now.may_offer(peer.worker):
            self._refuse(peer.name, peer.incarnation, offer, "late")
        elif offer.sample_ids != now.opened.deals.get(str(peer.worker)) or (
            offer.sample_ids and offer.element_count != self._elements
        ):
            self._refuse(peer.name, peer.incarnation, offer, "contract")
        else:
            now.offers[peer.worker] = offer
            self._collected(deadline_passed=False)

    # ------------------------------------------------------------ close

    def _collected(self, deadline_passed: bool) -> None:
        """Close when every member has offered, died or passed the deadline, and there is something to sum."""
        now = self.current
        if now is None or self.stage != "collect":
            return
        dealt = [peer.worker for peer in self.peers.members() if now.may_offer(peer.worker)]
        missing = [worker for worker in dealt if worker not in now.offers]
        contributing = [worker for worker in dealt if worker in now.offers and now.offers[worker].sample_ids]
        if missing and not (deadline_passed and contributing):
            return
        if not contributing:
            self._reopen("nobody left holds a gradient of it")
        elif self.config.strategy == "ps" and not self.server_address:
            self._out.append(Note(f"step {now.opened.step} waits for the parameter server"))
        else:
            now.left_out.update(dict.fromkeys(missing, "deadline"))
            self._close(contributing)

    def _reopen(self, reason: str) -> None:
        now = self.current
        assert now is not None
        self._out.append(Note(f"step {now.opened.step} is dealt anew: {reason}"))
        if self.peers.members():
            self._open(now.opened.step, now.attempt)
        else:
            self._abandon()

    def _abandon(self) -> None:
        """Nobody is left in an undecided step: back to the boundary before it."""
        self.current = None
        self.stage = "boundary"
        self._boundary()

    def _close(self, contributing: list[int]) -> None:
        now = self.current
        assert now is not None
        members = {peer.worker: peer for peer in self.peers.members()}
        contributors = tuple(
            (worker, members[worker].incarnation, len(now.offers[worker].sample_ids)) for worker in sorted(contributing)
        )
        offenders = tuple(worker for worker, _, _ in contributors if not now.offers[worker].finite)
        total = sum(count for _, _, count in contributors)
        left_out = tuple(sorted(now.left_out.items()))
        closed = Closed(now.opened.step, self.generation, now.attempt, contributors, total, left_out)
        now.closed, now.readies = closed, {}
        now.attempt += 1
        self.stage = "exchange"

        def durable() -> None:
            self._out.append(Phase("closed", closed.step))
            if offenders:
                self._commit(closed, "", offenders)
            else:
                self._tell_close()

        self._out.append(CancelTimer("deadline"))
        self._decide(f"close {closed.step}.{closed.attempt}", closed, durable)

    def _tell_close(self) -> None:
        message = self._close_message()
        if self.config.strategy == "ps":
            self._send(SERVER, message)
        for peer in self.peers.members():
            self._send(peer.name, message)
        self._out.append(SetTimer("exchange", self.config.timing.exchange_ms * (1 + min(message.attempt, 3))))

    def _close_message(self) -> Close:
        assert self.current is not None
        closed = self.current.closed
        assert closed is not None
        shares = tuple(Share(*contributor) for contributor in closed.contributors)
        return Close(
            self.generation, closed.step, closed.attempt, shares, closed.total, self.peers.as_members(),
            self.server_address,
        )  # fmt: skip

    def _try_again(self, reason: str) -> None:
        """Another attempt at the same step by the contributors that live, with the gradients that they hold."""
        now = self.current
        assert now is not None
        assert now.closed is not None
        alive = [worker for worker, _, _ in now.closed.contributors if self.peers.member(worker) is not None]
        self._out.append(Note(f"step {now.closed.step}, attempt {now.closed.attempt} is given up: {reason}"))
        if alive:
            self._close(alive)
        else:
            self._reopen("every contributor died")

    def _server_up(self) -> None:
        if self.stage == "collect":
            self._collected(deadline_passed=False)
        elif self.stage == "exchange":
            self._try_again("the parameter server (re)joined")

    # ------------------------------------------------------------ commit

    def _ready(self, peer: Peer, ready: Ready) -> None:
        now = self.current
        closed = now.closed if now is not None else None
        if now is None or closed is None or self.stage != "exchange":
            self._refuse(peer.name, peer.incarnation, ready, "late")
            return
        if (ready.step, ready.attempt) != (closed.step, closed.attempt):
            self._refuse(peer.name, peer.incarnation, ready, "late")
        elif all(peer.worker != worker for worker, _, _ in closed.contributors):
            self._refuse(peer.name, peer.incarnation, ready, "not a contributor")
        elif ready.own_digest != now.offers[peer.worker].digest:
            self._refuse(peer.name, peer.incarnation, ready, "conflict")
        else:
            now.readies[peer.worker] = ready
            if len(now.readies) == len(closed.contributors):
                self._reduced(now, closed)

    def _reduced(self, now: StepState, closed: Closed) -> None:
        digests = {ready.reduced_digest for ready in now.readies.values()}
        if len(digests) > 1:
            now.mismatched += 1
            if now.mismatched >= MISMATCHED_ATTEMPTS_MAX:
                self._stop("replicas disagree", f"step {closed.step}, every attempt: {now.reduced_values()}")
            else:
                self._try_again(f"the reduced values differ: {now.reduced_values()}")
            return
        # All hold the same bits: if the sum overflowed, all say so; if only some do, these are the ones to look at.
        offenders = tuple(worker for worker, _, _ in closed.contributors if not now.readies[worker].finite)
        self._commit(closed, digests.pop(), offenders)

    def _commit(self, closed: Closed, reduced_digest: str, offenders: tuple[int, ...]) -> None:
        """Decide: the step stands with exactly these contributors (or is skipped, if something is not finite)."""
        now = self.current
        assert now is not None
        offers = [now.offers[worker] for worker, _, _ in closed.contributors]
        loss = sum(offer.loss * len(offer.sample_ids) for offer in offers) / closed.total
        committed = Committed(
            closed.step, self.generation, closed.attempt, now.opened.epoch, closed.contributors,
            tuple(offer.sample_ids for offer in offers), tuple(offer.digest for offer in offers), closed.total,
            reduced_digest, loss, bool(offenders), offenders,
        )  # fmt: skip

        def durable() -> None:
            self.committed(committed)
            self._out.append(Phase("tell", committed.step))
            for peer in self.peers.members():
                self._send(peer.name, self._commit_message())

        self._out.append(CancelTimer("exchange"))
        self._out.append(Phase("decide", committed.step))
        word = "skip" if committed.skip else "commit"
        self._decide(f"{word} {committed.step}.{committed.attempt}", committed, durable)

    def committed(self, committed: Committed) -> None:
        """The decision is durable: it counts, whoever dies now."""
        assert self.current is not None
        self.current.committed = committed
        self.stage = "apply"
        self.state = None
        self.sampler.commit(tuple(sample for ids in committed.sample_ids for sample in ids))

    def _commit_message(self) -> Commit:
        now = self.current
        assert now is not None
        committed = now.committed
        assert committed is not None
        source = self._holder()
        return Commit(
            self.generation, committed.step, committed.attempt, committed.skip, committed.reduced_digest,
            source.name if source else "", source.address if source else "",
        )  # fmt: skip

    def _holder(self) -> Peer | None:
        """The lowest live member that holds the committed value: a contributor, or one that has applied it."""
        now = self.current
        assert now is not None
        committed = now.committed
        assert committed is not None
        holders = {worker: incarnation for worker, incarnation, _ in committed.contributors}
        for peer in self.peers.members():
            if holders.get(peer.worker) == peer.incarnation or peer.worker in now.applied:
                return peer
        return None

    # ------------------------------------------------------------ apply

    def _applied(self, peer: Peer, applied: Applied) -> None:
        now = self.current
        if self.stage != "apply" or now is None or now.committed is None or applied.step != now.committed.step:
            self._refuse(peer.name, peer.incarnation, applied, "late")
            return
        now.applied[peer.worker] = applied
        self._all_applied()

    def _all_applied(self) -> None:
        now = self.current
        assert now is not None
        assert now.committed is not None
        members = self.peers.members()
        if not members or any(peer.worker not in now.applied for peer in members):
            return
        answers = [(peer, now.applied[peer.worker]) for peer in members]
        rows = tuple((p.worker, p.incarnation, a.parameters_digest, a.velocity_digest) for p, a in answers)
        self._out.append(Record(StepApplied(now.committed.step, self.generation, rows)))
        self._out.append(CancelTimer("resend"))
        self.step = now.committed.step
        self._contributed = frozenset(worker for worker, _, _ in now.committed.contributors)
        self.digests = (rows[0][2], rows[0][3])
        self.current = None
        due = self.step % self.config.checkpoint_every == 0 or self.step == self.config.steps
        if due:
            self.stage = "checkpoint"
            self._ask_for_checkpoint()
            self._out.append(SetTimer("resend", self.config.timing.resend_ms))
        else:
            self._boundary()

    def _writer(self) -> Peer:
        """Who writes the checkpoint: the lowest contributor, who shows the verifier the step's value, if it lives."""
        members = self.peers.members()
        return next((peer for peer in members if peer.worker in self._contributed), members[0])

    # ------------------------------------------------------------ deaths

    def _member_lost(self, worker: int) -> None:
        if self.current is not None:
            self.current.applied.pop(worker, None)
            if self.current.closed is None:
                self.current.offers.pop(worker, None)

    def _resume_step(self) -> None:
        now = self.current
        self._out.append(SetTimer("resend", self.config.timing.resend_ms))  # a coordinator that came back has none
        if self.stage == "checkpoint":
            if self.peers.members():
                self._ask_for_checkpoint()
            else:
                self._boundary()
        elif now is None:
            self._boundary()
        elif self.stage == "collect":
            for peer in self.peers.members():
                self._ask(peer)
            if self.came_back:
                self.came_back = False
                self._out.append(SetTimer("deadline", self.config.timing.deadline_ms))
            self._collected(deadline_passed=False)
        elif self.stage == "exchange":
            self._try_again("the membership changed")
        else:
            self._resume_apply(now)

    def _resume_apply(self, now: StepState) -> None:
        members = self.peers.members()
        waiting = [peer for peer in members if peer.worker not in now.applied]
        if now.committed is not None and not now.committed.skip and waiting and self._holder() is None:
            for peer in members:
                peer.state, peer.demoted = LOADED, True  # nobody holds the committed value: as if all had died
            waiting = members = []
        if not members:
            assert now.committed is not None
            self.step, self.current = now.committed.step, None
            self._boundary()
            return
        for peer in waiting:
            self._ask(peer)
        self._all_applied()

    # ------------------------------------------------------------ timers and end

    def _step_timer(self, name: str) -> None:
        if name == "deadline":
            self._out.append(SetTimer("deadline", self.config.timing.deadline_ms))
            self._collected(deadline_passed=True)
        elif name == "exchange" and self.stage == "exchange":
            self._try_again("the exchange stalled")
        elif name == "resend" and self.stage in ("collect", "exchange", "apply", "checkpoint"):
            self._out.append(SetTimer("resend", self.config.timing.resend_ms))
            for peer in self.peers.members():
                self._ask(peer)
