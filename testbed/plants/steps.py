"""Bugs in the order of steps and attempts, and in what a close fixes."""

from __future__ import annotations

from dataclasses import replace

from services.messages import Close, Offer, Open
from services.records import Closed
from services.roles.coordinator import Coordinator
from services.roles.peers import Peer
from services.roles.worker import Worker
from testbed.plants.registry import Patch, memory, plant


@plant("step-repeated", invariant="step monotonicity")
def step_repeated() -> list[Patch]:
    """Nobody counts step 3: it is opened, computed and committed a second time."""
    open_next, apply = Coordinator._open_next, Worker._apply

    def open_again(self: Coordinator) -> None:
        if self.step == 3 and not memory(self).get("repeated"):
            memory(self)["repeated"] = True
            self.step = 2
        open_next(self)

    def forget(self: Worker, state: object) -> None:
        before = self.step
        apply(self, state)  # type: ignore[arg-type]
        if self.step == 3 and before == 2 and not memory(self).get("repeated"):
            memory(self)["repeated"] = True
            self.step = 2

    return [(Coordinator, "_open_next", open_again), (Worker, "_apply", forget)]


@plant("step-skipped", invariant="step monotonicity")
def step_skipped() -> list[Patch]:
    """After step 4 everybody goes on with step 6."""
    open_next, open_step = Coordinator._open_next, Worker._open

    def jump(self: Coordinator) -> None:
        if self.step == 4:
            self.step = 5
        open_next(self)

    def follow(self: Worker, message: Open) -> None:
        if self.state is not None and self.step == 4 and message.step == 6:
            self.step = 5
        open_step(self, message)

    return [(Coordinator, "_open_next", jump), (Worker, "_open", follow)]


@plant("attempt-not-raised", invariant="step monotonicity", scenario="kill-at-reduce")
def attempt_not_raised() -> list[Patch]:
    """A step that is tried again bears the number of the attempt that failed."""
    close, begin = Coordinator._close, Worker._close

    def same_number(self: Coordinator, contributing: list[int]) -> None:
        close(self, contributing)
        assert self.current is not None
        self.current.attempt = 0

    def begin_anew(self: Worker, message: Close) -> None:
        exchange = self._exchange
        if exchange is not None and exchange.attempt.generation < message.generation:
            self._exchange = None
        begin(self, message)

    return [(Coordinator, "_close", same_number), (Worker, "_close", begin_anew)]


# ---------------------------------------------------------------- the straggler's gradient, after all


def _waits_for_the_late(then: object) -> list[Patch]:
    """A close that left somebody out by its deadline is told when the late offer has come: `then(coordinator)`."""
    tell, offer = Coordinator._tell_close, Coordinator._offer

    def tell_later(self: Coordinator) -> None:
        now = self.current
        late = now is not None and "deadline" in now.left_out.values() and now.opened.step != memory(self).get("told")
        if not late:
            tell(self)

    def take_late(self: Coordinator, peer: Peer, message: Offer) -> None:
        now = self.current
        due = self.stage == "exchange" and now is not None and now.left_out.get(peer.worker) == "deadline"
        if not due or now is None or message.step != now.opened.step or memory(self).get("told") == message.step:
            offer(self, peer, message)
            return
        memory(self)["told"] = message.step
        now.offers[peer.worker] = message
        then(self, peer)  # type: ignore[operator]

    return [(Coordinator, "_tell_close", tell_later), (Coordinator, "_offer", take_late)]


@plant("late-gradient-counted", invariant="contribution accounting", scenario="straggler")
def late_gradient_counted() -> list[Patch]:
    """A straggler's late gradient is named in the commit that was closed without it."""
    commit = Coordinator._commit

    def with_the_late(self: Coordinator, closed: Closed, reduced_digest: str, offenders: tuple[int, ...]) -> None:
        now = self.current
        assert now is not None
        late = [peer for peer in self.peers.members() if now.left_out.get(peer.worker) == "deadline"]
        rows = [(peer.worker, peer.incarnation, len(now.offers[peer.worker].sample_ids)) for peer in late]
        named = tuple(sorted((*closed.contributors, *rows)))
        commit(self, replace(closed, contributors=named, total=sum(row[2] for row in named)), reduced_digest, offenders)

    def go_on(coordinator: Coordinator, peer: Peer) -> None:
        coordinator._tell_close()

    return [*_waits_for_the_late(go_on), (Coordinator, "_commit", with_the_late)]


@plant("close-reopened", invariant="step monotonicity", scenario="straggler")
def close_reopened() -> list[Patch]:
    """A late offer opens the closed set of contributors again, under the same attempt."""

    def close_again(coordinator: Coordinator, peer: Peer) -> None:
        now = coordinator.current
        assert now is not None
        now.left_out.pop(peer.worker)
        now.attempt -= 1
        coordinator._close(sorted(now.offers))

    return _waits_for_the_late(close_again)
