"""Bugs in what is summed, and with which weights."""

from __future__ import annotations

from typing import Any

import numpy as np

from services.exchange import Gather, _Contributing
from services.jobs import Gradient, GradientJob
from services.messages import Array, Part
from services.roles.stepping import Stepping
from testbed.plants.registry import Patch, plant


@plant("mean-of-means", invariant="gradient exactness", scenario="short-batch-death")
def mean_of_means() -> list[Patch]:
    """Every contributor weighs 1/k instead of n_k/N."""

    def own(self: _Contributing, index: int) -> Array:
        start, stop = self.bounds[index]
        return self._gradient[start:stop] * (1.0 / len(self.attempt.contributors))

    return [(_Contributing, "own", own)]


@plant("counted-twice", invariant="contribution accounting")
def counted_twice() -> list[Patch]:
    """The second contributor's gradient is added twice."""
    original = _Contributing.own

    def own(self: _Contributing, index: int) -> Array:
        value = original(self, index)
        return value + value if self._place == 1 else value

    return [(_Contributing, "own", own)]


@plant("dropped-contribution", invariant="contribution accounting")
def dropped() -> list[Patch]:
    """The last contributor is named in the commit, but adds zeros."""
    original = _Contributing.own

    def own(self: _Contributing, index: int) -> Array:
        value = original(self, index)
        last = self._place == len(self.attempt.contributors) - 1
        return np.zeros_like(value) if last and self._place > 0 else value

    return [(_Contributing, "own", own)]


@plant("wrong-step", invariant="gradient exactness")
def wrong_step() -> list[Patch]:
    """From step 4 on a worker offers the gradient that it computed one step earlier, over that step's samples."""
    original = GradientJob.__call__
    before: dict[int, Gradient] = {}

    def late(self: GradientJob) -> Gradient:
        fresh = original(self)
        key = len(self.sample_ids)
        stale, before[key] = before.get(key), fresh
        if stale is None:
            return fresh
        return Gradient(fresh.sample_ids, stale.value, stale.digest, stale.loss, stale.finite)

    return [(GradientJob, "__call__", late)]


@plant("wrong-total", invariant="gradient exactness", scenario="kill-at-open")
def wrong_total() -> list[Patch]:
    """N counts the samples of everybody who was dealt some, the dead included."""
    original = Stepping._close_message

    def close_message(self: Stepping) -> Any:
        message = original(self)
        assert self.current is not None
        total = sum(len(ids) for ids in self.current.opened.deals.values())
        return type(message)(
            message.generation, message.step, message.attempt, message.contributors, total, message.members,
            message.server_address,
        )  # fmt: skip

    return [(Stepping, "_close_message", close_message)]


@plant("arrival-order", invariant="contribution accounting")
def arrival_order() -> list[Patch]:
    """Contributions are added from the highest worker id down, as if that were the order of their arrival."""
    original = Stepping._close_message

    def close_message(self: Stepping) -> Any:
        message = original(self)
        return type(message)(
            message.generation, message.step, message.attempt, message.contributors[::-1], message.total,
            message.members, message.server_address,
        )  # fmt: skip

    return [(Stepping, "_close_message", close_message)]


@plant("server-sums-as-they-come", invariant="contribution accounting", strategy="ps")
def server_arrival() -> list[Patch]:
    """The server adds each chunk the moment that it arrives, and still claims ascending order."""

    def take(self: Gather, worker: int, part: Part) -> Part | None:
        self.check(part, (worker,))
        index = part.index
        so_far = self._sums[index]
        self._sums[index] = part.data if so_far is None else so_far + part.data
        self._next[index] += 1
        if self._next[index] < len(self.attempt.contributors):
            return None
        done = self._sums[index]
        assert done is not None
        return self.part("publish", index, self.attempt.workers, done)

    return [(Gather, "take", take)]


@plant("weight-rounded", invariant="gradient exactness")
def weight_rounded() -> list[Patch]:
    """n_k / N is taken in float32."""

    def own(self: _Contributing, index: int) -> Array:
        start, stop = self.bounds[index]
        share = self.attempt.contributors[self._place]
        weight = float(np.float32(share.sample_count) / np.float32(self.attempt.total))
        weight = float(np.nextafter(np.float32(weight), np.float32(1)))
        return weight * self._gradient[start:stop]

    return [(_Contributing, "own", own)]
