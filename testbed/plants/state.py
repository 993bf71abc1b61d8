"""Bugs in the state that members hold: the optimizer's step, and replicas that are not alike."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from services.exchange import Finished
from services.jobs import ApplyJob, Gradient, State
from services.messages import Array
from services.parts import Assembly
from services.records import Closed
from services.roles.coordinator import Coordinator
from services.roles.worker import Worker
from testbed.plants.registry import Patch, memory, plant
from training.optimizer import apply_sgd


@plant("one-ulp", invariant="replica agreement")
def one_ulp() -> list[Patch]:
    """Worker 2's first parameter is one unit in the last place off after step 5."""
    original = Worker._apply

    def apply(self: Worker, state: State) -> None:
        if self.worker == 2 and self.step + 1 == 5:
            parameters = state.parameters.copy()
            parameters[0] = np.nextafter(parameters[0], np.inf)
            state = State.of(parameters, state.velocity)
        original(self, state)

    return [(Worker, "_apply", apply)]


@plant("negative-zero", invariant="replica agreement", scenario="digits")
def negative_zero() -> list[Patch]:
    """After step 5 worker 2 has -0.0 where the others' velocity has 0.0."""
    original = Worker._apply

    def apply(self: Worker, state: State) -> None:
        if self.worker == 2 and self.step + 1 == 5:
            state = State.of(state.parameters, np.where(state.velocity == 0.0, -0.0, state.velocity))
        original(self, state)

    return [(Worker, "_apply", apply)]


@plant("learning-rate-twice", invariant="gradient exactness")
def learning_rate_twice() -> list[Patch]:
    """Everybody applies the learning rate twice."""

    def step(self: ApplyJob) -> State:
        rate = self.optimizer.learning_rate
        optimizer = replace(self.optimizer, learning_rate=rate * rate)
        return State.of(*apply_sgd(optimizer, self.state.parameters, self.state.velocity, self.reduced))

    return [(ApplyJob, "__call__", step)]


@plant("velocity-of-the-step-before", invariant="gradient exactness")
def old_velocity() -> list[Patch]:
    """Parameters move by the velocity before it takes the gradient in, not after."""

    def step(self: ApplyJob) -> State:
        parameters, velocity = self.state.parameters, self.state.velocity
        moved = parameters - self.optimizer.learning_rate * velocity
        return State.of(moved, self.optimizer.momentum * velocity + self.reduced)

    return [(ApplyJob, "__call__", step)]


@plant("straggler-does-not-apply", invariant="replica agreement", scenario="straggler")
def does_not_apply() -> list[Patch]:
    """A member that was left out of a step fetches its value, and says that it has applied it without doing so."""

    def fetched(self: Worker, assembly: Assembly) -> None:
        assert self.state is not None
        self._apply(self.state)

    return [(Worker, "_fetched", fetched)]


# ---------------------------------------------------------------- what is not finite


def _with_nan(gradient: Gradient, finite: bool) -> Gradient:
    value: Array = gradient.value.copy()
    value[0] = np.nan
    return Gradient(gradient.sample_ids, value, State.of(value, value).parameters_digest, gradient.loss, finite)


def _nan_of_worker_2(finite: bool) -> Patch:
    """Worker 2's gradient of step 5 has a NaN in it."""
    original = Worker._has_gradient

    def has_gradient(self: Worker, gradient: Gradient) -> None:
        poisoned = self.worker == 2 and self.step + 1 == 5
        original(self, _with_nan(gradient, finite) if poisoned else gradient)

    return (Worker, "_has_gradient", has_gradient)


@plant("nan-let-through", invariant="gradient exactness")
def nan_let_through() -> list[Patch]:
    """Nobody looks whether a gradient is finite, and worker 2's of step 5 is not."""
    original = Finished.put

    def put(self: Finished, index: int, data: Array) -> None:
        original(self, index, data)
        self.finite = True

    return [_nan_of_worker_2(finite=True), (Finished, "put", put)]


@plant("skip-moves-momentum", invariant="gradient exactness")
def skip_moves_momentum() -> list[Patch]:
    """Worker 2's gradient of step 5 is not finite, and the skip of that step lets the velocity decay."""
    original = Worker._apply

    def apply(self: Worker, state: State) -> None:
        if self._commit is not None and self._commit.skip:
            state = State.of(state.parameters, self.config.optimizer.momentum * state.velocity)
        original(self, state)

    return [_nan_of_worker_2(finite=False), (Worker, "_apply", apply)]


@plant("wrong-offender", invariant="gradient exactness")
def wrong_offender() -> list[Patch]:
    """Worker 2's gradient of step 5 is not finite, and the skip of that step names worker 1."""
    original = Coordinator._commit

    def commit(self: Coordinator, closed: Closed, reduced_digest: str, offenders: tuple[int, ...]) -> None:
        original(self, closed, reduced_digest, (1,) if offenders else ())

    return [_nan_of_worker_2(finite=False), (Coordinator, "_commit", commit)]


# ---------------------------------------------------------------- joiners


def _unproved(change: object) -> Patch:
    """A joiner tells the digests that it was told, whatever it holds: `change(state)` of what it fetched."""
    original = Worker._proved

    def proved(self: Worker, state: State) -> None:
        if self._adopting is not None and self._adopting.step > 0:  # not the first cast, which has nothing to lose
            parameters, velocity = change(state)  # type: ignore[operator]
            told = (self._adopting.parameters_digest, self._adopting.velocity_digest)
            state = State(parameters, velocity, *told)
        original(self, state)

    return (Worker, "_proved", proved)


@plant("joiner-not-proved", invariant="replica agreement", scenario="relaunch")
def joiner_not_proved() -> list[Patch]:
    """A joiner repeats the digests that it is told instead of hashing what it holds, which is one bit off."""

    def one_bit_off(state: State) -> tuple[Array, Array]:
        parameters = state.parameters.copy()
        parameters[3] = np.nextafter(parameters[3], np.inf)
        return parameters, state.velocity

    return [_unproved(one_bit_off)]


@plant("joiner-without-velocity", invariant="replica agreement", scenario="relaunch")
def joiner_without_velocity() -> list[Patch]:
    """A joiner takes the parameters over, but starts from a velocity of zeros."""
    return [_unproved(lambda state: (state.parameters, np.zeros_like(state.velocity)))]


@plant("joiner-a-step-behind", invariant="replica agreement", scenario="late-join")
def joiner_a_step_behind() -> list[Patch]:
    """A joiner is served, and takes for proved, the state of the step before."""
    apply, serve = Worker._apply, Worker._serve

    def applied(self: Worker, state: State) -> None:
        memory(self)["before"] = self.state
        apply(self, state)

    def served(self: Worker, source: str, message: object) -> None:
        now = self.state
        self.state = memory(self).get("before", now)
        try:
            serve(self, source, message)  # type: ignore[arg-type]
        finally:
            self.state = now

    unproved = _unproved(lambda state: (state.parameters, state.velocity))
    return [(Worker, "_apply", applied), (Worker, "_serve", served), unproved]
