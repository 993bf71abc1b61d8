"""One member that lies: worker 3 sends other things than it should, with everything around them in order."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.exchange import PushExchange, RingExchange
from services.jobs import Gradient, GradientJob
from services.messages import Array, Message, Offer, Ready
from services.roles.worker import Worker
from testbed.plants.registry import Patch, memory, plant
from training.digest import array_digest

LIAR = 3
FROM_STEP = 4


def _lies(worker: Worker) -> bool:
    return worker.worker == LIAR and worker.step + 1 >= FROM_STEP


@plant("lies-about-its-gradient", invariant="gradient exactness")
def about_its_gradient() -> list[Patch]:
    """Worker 3 contributes the opposite of its gradient, with a digest that fits."""
    original = Worker._has_gradient

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        if _lies(self):
            value = -gradient.value
            gradient = replace(gradient, value=value, digest=array_digest(value))
        original(self, gradient)

    return [(Worker, "_has_gradient", has_gradient)]


@plant("lies-about-its-samples", invariant="gradient exactness")
def about_its_samples() -> list[Patch]:
    """Worker 3 computes over its first sample alone, and says that it was over all that it was dealt."""
    compute, has = Worker._compute, Worker._has_gradient

    def computed(self: Worker, kind: str, job: object) -> None:
        if isinstance(job, GradientJob) and _lies(self):
            memory(self)["ids"] = job.sample_ids
            job = replace(job, sample_ids=job.sample_ids[:1])
        compute(self, kind, job)

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        told = memory(self).get("ids", gradient.sample_ids) if _lies(self) else gradient.sample_ids
        has(self, replace(gradient, sample_ids=told))

    return [(Worker, "_compute", computed), (Worker, "_has_gradient", has_gradient)]


@plant("stale-digest", invariant="contribution accounting")
def stale_digest() -> list[Patch]:
    """Worker 3 says the digest of the gradient that it contributed one step before."""
    original = Worker._has_gradient

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        before = memory(self).get("digest", gradient.digest)
        memory(self)["digest"] = gradient.digest
        original(self, replace(gradient, digest=before) if _lies(self) else gradient)

    return [(Worker, "_has_gradient", has_gradient)]


@plant("lies-about-its-number", invariant="contribution accounting")
def about_its_number() -> list[Patch]:
    """Worker 3 weighs its gradient as if it had one sample less than it was dealt."""
    original = RingExchange.own

    def own(self: RingExchange | PushExchange, index: int) -> Array:
        value = original(self, index)
        share = self.attempt.contributors[self._place]
        lies = share.worker == LIAR and self.attempt.step >= FROM_STEP
        return value * ((share.sample_count - 1) / share.sample_count) if lies else value

    return [(RingExchange, "own", own), (PushExchange, "own", own)]


@plant("shows-another-gradient", invariant="contribution accounting")
def shows_another() -> list[Patch]:
    """Worker 3 sums the opposite of what it tells the verifier, and offers the digest of what it tells."""
    original = RingExchange.own

    def own(self: RingExchange | PushExchange, index: int) -> Array:
        value = original(self, index)
        share = self.attempt.contributors[self._place]
        return -value if share.worker == LIAR and self.attempt.step >= FROM_STEP else value

    return [(RingExchange, "own", own), (PushExchange, "own", own)]


@plant("offers-another-digest", invariant="contribution accounting")
def offers_another_digest() -> list[Patch]:
    """Worker 3 offers another digest than that of the gradient which it tells the verifier and sums."""
    original = Worker._answer

    def answer(self: Worker, message: Message) -> None:
        if _lies(self) and self.state is not None:
            other = array_digest(self.state.velocity)
            if isinstance(message, Offer):
                message = replace(message, digest=other)
            elif isinstance(message, Ready):
                message = replace(message, own_digest=other)
        original(self, message)

    return [(Worker, "_answer", answer)]


@plant("lies-about-the-sum", invariant="gradient exactness")
def about_the_sum() -> list[Patch]:
    """Worker 3 says that the reduced value is not finite, so that its steps are skipped."""
    original = Worker._answer

    def answer(self: Worker, message: Message) -> None:
        original(self, replace(message, finite=False) if _lies(self) and isinstance(message, Ready) else message)

    return [(Worker, "_answer", answer)]


@plant("hides-a-nan", invariant="gradient exactness")
def hides_a_nan() -> list[Patch]:
    """Worker 3 contributes a NaN, and offers it as a gradient that is finite."""
    original = Worker._has_gradient

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        if _lies(self):
            value = gradient.value.copy()
            value[0] = np.nan
            gradient = replace(gradient, value=value, digest=array_digest(value), finite=True)
        original(self, gradient)

    return [(Worker, "_has_gradient", has_gradient)]


@plant("lies-about-its-loss", invariant="gradient exactness")
def about_its_loss() -> list[Patch]:
    """Worker 3 says half the loss that its samples have."""
    original = Worker._has_gradient

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        original(self, replace(gradient, loss=gradient.loss / 2) if _lies(self) else gradient)

    return [(Worker, "_has_gradient", has_gradient)]
