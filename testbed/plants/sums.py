"""Bugs in what is summed, in which order, and with which weights."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import numpy as np

from services.exchange import Gather, PushExchange, RingExchange
from services.jobs import Gradient, GradientJob
from services.messages import Array, Close, Part
from services.records import Committed, Fact
from services.roles.coordinator import Coordinator
from services.roles.worker import Worker
from testbed.plants.registry import Patch, memory, plant

Exchange = RingExchange | PushExchange


def _own(own: object) -> list[Patch]:
    """A contributor's scaled chunk, in both strategies."""
    return [(RingExchange, "own", own), (PushExchange, "own", own)]


@plant("mean-of-means", invariant="gradient exactness")
def mean_of_means() -> list[Patch]:
    """Every contributor weighs 1/k instead of n_k/N."""

    def own(self: Exchange, index: int) -> Array:
        start, stop = self.bounds[index]
        return self._gradient[start:stop] * (1.0 / len(self.attempt.contributors))

    return _own(own)


@plant("counted-twice", invariant="contribution accounting")
def counted_twice() -> list[Patch]:
    """The second contributor's gradient is added twice."""
    original = RingExchange.own

    def own(self: Exchange, index: int) -> Array:
        value = original(self, index)
        return value + value if self._place == 1 else value

    return _own(own)


@plant("dropped-contribution", invariant="contribution accounting")
def dropped() -> list[Patch]:
    """The last contributor is named in the commit, but adds zeros."""
    original = RingExchange.own

    def own(self: Exchange, index: int) -> Array:
        value = original(self, index)
        last = self._place == len(self.attempt.contributors) - 1
        return np.zeros_like(value) if last and self._place > 0 else value

    return _own(own)


@plant("chunk-not-added", invariant="contribution accounting", scenario="kill-at-reduce-chunk")
def chunk_not_added() -> list[Patch]:
    """Of the second contributor every chunk but one is added."""
    original = RingExchange.own

    def own(self: Exchange, index: int) -> Array:
        value = original(self, index)
        return np.zeros_like(value) if self._place == 1 and index == len(self.bounds) - 1 else value

    return _own(own)


@plant("weight-rounded", invariant="gradient exactness")
def weight_rounded() -> list[Patch]:
    """n_k / N is taken in float32, and rounded up."""

    def own(self: Exchange, index: int) -> Array:
        start, stop = self.bounds[index]
        share = self.attempt.contributors[self._place]
        weight = np.float32(share.sample_count) / np.float32(self.attempt.total)
        return float(np.nextafter(weight, np.float32(1))) * self._gradient[start:stop]

    return _own(own)


@plant("wrong-step", invariant="gradient exactness")
def wrong_step() -> list[Patch]:
    """From step 4 on a worker offers the gradient that it computed one step earlier, over that step's samples."""
    original = Worker._has_gradient

    def late(self: Worker, gradient: Gradient) -> None:
        before: Gradient = memory(self).get("gradient", gradient)
        memory(self)["gradient"] = gradient
        if self.step + 1 >= 4:
            gradient = replace(before, sample_ids=gradient.sample_ids)
        original(self, gradient)

    return [(Worker, "_has_gradient", late)]


@plant("stale-parameters", invariant="gradient exactness")
def stale_parameters() -> list[Patch]:
    """From step 4 on gradients are computed at the parameters of the step before."""
    original = Worker._compute

    def compute(self: Worker, kind: str, job: object) -> None:
        if isinstance(job, GradientJob):
            before: Array = memory(self).get("parameters", job.parameters)
            memory(self)["parameters"] = job.parameters
            if self.step + 1 >= 4:
                job = replace(job, parameters=before)
        original(self, kind, job)

    return [(Worker, "_compute", compute)]


@plant("wrong-total", invariant="gradient exactness", scenario="kill-at-open")
def wrong_total() -> list[Patch]:
    """N counts the samples of everybody who was dealt some, the dead included."""
    original = Coordinator._close_message

    def close_message(self: Coordinator) -> Close:
        assert self.current is not None
        total = sum(len(ids) for ids in self.current.opened.deals.values())
        return replace(original(self), total=total)

    return [(Coordinator, "_close_message", close_message)]


@plant("total-of-the-first-attempt", invariant="gradient exactness", scenario="kill-at-reduce")
def old_total() -> list[Patch]:
    """When a step is tried again without a dead contributor, the survivors keep the N that was closed first."""
    original = Worker._close

    def close(self: Worker, message: Close) -> None:
        step, total = memory(self).get("total", (0, 0))
        if message.step != step:
            total = message.total
            memory(self)["total"] = (message.step, total)
        original(self, replace(message, total=total))

    return [(Worker, "_close", close)]


@plant("arrival-order", invariant="contribution accounting")
def arrival_order() -> list[Patch]:
    """Contributions are added from the highest worker id down, as if that were the order of their arrival."""
    original = Coordinator._close_message

    def close_message(self: Coordinator) -> Close:
        message = original(self)
        return replace(message, contributors=message.contributors[::-1])

    return [(Coordinator, "_close_message", close_message)]


@plant("server-sums-as-they-come", invariant="contribution accounting", strategy="ps")
def server_arrival() -> list[Patch]:
    """The server adds chunks as they lie in its inbox, the newest first, and still claims ascending order."""

    def take(self: Gather, worker: int, part: Part) -> Part | None:
        self.check(part, (worker,))
        inbox = self._early[part.index]
        inbox[self.attempt.workers.index(worker)] = part.data
        if len(inbox) < len(self.attempt.contributors):
            return None
        done, *others = [inbox[place] for place in sorted(inbox, reverse=True)]
        for data in others:
            done = done + data
        return self.part("publish", part.index, self.attempt.workers, done)

    return [(Gather, "take", take)]


@plant("attempts-mixed", invariant="contribution accounting", scenario="kill-at-ready")
def attempts_mixed() -> list[Patch]:
    """A step that is tried again without a dead contributor is given the value of the attempt that had it."""
    original = Worker._finished

    def finished(self: Worker, exchange: Exchange) -> None:
        key, whole = exchange.attempt.step, exchange.finished
        if whole.complete and self._held is None:
            step, first = memory(self).get("first", (0, whole))
            if step == key:
                exchange.finished = first
            else:
                memory(self)["first"] = (key, whole)
        original(self, exchange)

    return [(Worker, "_finished", finished)]


@plant("loss-not-weighted", invariant="gradient exactness")
def loss_not_weighted() -> list[Patch]:
    """The loss of a step is the mean of the members' losses, whatever their numbers of samples."""
    original = Coordinator._decide

    def decide(self: Coordinator, what: str, fact: Fact, then: Callable[[], None]) -> None:
        if isinstance(fact, Committed) and self.current is not None:
            losses = [self.current.offers[worker].loss for worker, _, _ in fact.contributors]
            fact = replace(fact, loss=sum(losses) / len(losses))
        original(self, what, fact, then)

    return [(Coordinator, "_decide", decide)]
