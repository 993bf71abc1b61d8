"""A sharded run as one loop: what roles do with boundaries, without roles. A reference for orders of magnitude.

Boundaries are perturbed on their way: encoded and decoded, then scaled by the weight of their own age, in both
directions unless told otherwise. Gradients pass straight through codec and decay.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from training.arrays import FloatArray, IntArray
from training.boundary_codec import ErrorFeedback, decode, encode
from training.optimizers import OptimizerSettings, OptimizerState, start, update
from training.staleness import DecayConfig, DelayConfig, Direction, decay_weight, delay_ticks
from training.tokens import Corpus, batch_generator, draw_batch, evaluation_batch
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import ShardSpec, cut, merge_parameters
from training.transformer.step import add_micro_batch, central_loss, mean_loss, micro_batches


@dataclass
class Boundaries:
    """What happens to a boundary between two shards; nothing by default."""

    compression: tuple[int, int] | None = None
    backward_too: bool = True
    delay: DelayConfig = field(default_factory=DelayConfig)
    decay: DecayConfig | None = None
    seed: int = 0
    feedback: bool = False
    _residuals: dict[tuple[int, int, Direction], ErrorFeedback] = field(default_factory=dict)

    def __call__(self, values: FloatArray, step: int, micro_batch: int, at: int, direction: Direction) -> FloatArray:
        """What the receiving shard works with."""
        if direction == "backward" and not self.backward_too:
            return values
        if self.compression is not None:
            key = (micro_batch, at, direction)
            if self.feedback:
                payload = self._residuals.setdefault(key, ErrorFeedback(*self.compression)).encode(values)
            else:
                payload = encode(values, *self.compression)
            values = decode(payload, values.size).reshape(values.shape)
        age = delay_ticks(self.delay, self.seed, step, micro_batch, at, direction)
        if self.decay is not None:
            values = decay_weight(age, self.decay.rate, self.decay.floor) * values
        return values


def gradients(
    specs: Sequence[ShardSpec],
    parameters: Sequence[FloatArray],
    batch: tuple[IntArray, IntArray],
    micro_batch_count: int,
    boundaries: Boundaries | None = None,
    step: int = 1,
) -> tuple[float, list[FloatArray]]:
    """Loss and each shard's gradient of one step."""
    boundaries = boundaries or Boundaries()
    inputs, targets = batch
    totals: list[FloatArray | None] = [None] * len(specs)
    losses = []
    for index, (first, last) in enumerate(micro_batches(len(inputs), micro_batch_count)):
        values: FloatArray | IntArray = inputs[first:last]
        caches = []
        for spec, own in zip(specs, parameters, strict=True):
            if spec.index:
                values = boundaries(np.asarray(values, dtype=np.float64), step, index, spec.index - 1, "forward")
            values, cache = shard_forward(spec, own, values)
            caches.append(cache)
        loss, gradient = cross_entropy(np.asarray(values, dtype=np.float64), targets[first:last])
        losses.append((loss, last - first))
        for spec in reversed(specs):
            into, own_gradient = shard_backward(spec, parameters[spec.index], caches[spec.index], gradient)
            totals[spec.index] = add_micro_batch(totals[spec.index], own_gradient, last - first, len(inputs))
            if into is not None:
                gradient = boundaries(into, step, index, spec.index - 1, "backward")
    return mean_loss(losses, len(inputs)), [total for total in totals if total is not None]


@dataclass
class Run:
    """Parameters and optimizer state per shard, and the evaluation curve."""

    specs: tuple[ShardSpec, ...]
    parameters: list[FloatArray]
    states: list[OptimizerState]
    curve: list[tuple[int, float]] = field(default_factory=list)
    losses: list[float] = field(default_factory=list)

    @property
    def merged(self) -> FloatArray:
        """The central model's parameters."""
        return merge_parameters(self.specs, self.parameters)


def train(
    specs: tuple[ShardSpec, ...],
    corpus: Corpus,
    settings: OptimizerSettings,
    steps: int,
    boundaries: Boundaries | None = None,
    *,
    seed: int = 0,
    batch_size: int = 8,
    micro_batch_count: int = 1,
    evaluate_every: int = 10,
    evaluation_contexts: int = 8,
) -> Run:
    """Train, evaluating the merged model at step 0, every `evaluate_every` steps and at the end."""
    config = specs[0].config
    (central,) = cut(config)
    fixed = evaluation_batch(corpus.evaluation, evaluation_contexts, config.context)
    parameters = [initial_parameters(spec, seed) for spec in specs]
    run = Run(specs, parameters, [start(settings, len(own)) for own in parameters])
    generator = batch_generator(seed)
    run.curve.append((0, central_loss(central, run.merged, fixed.inputs, fixed.targets)))
    for step in range(1, steps + 1):
        batch, generator = draw_batch(corpus.train, batch_size, config.context, generator)
        loss, found = gradients(
            specs, run.parameters, (batch.inputs, batch.targets), micro_batch_count, boundaries, step
        )
        run.losses.append(loss)
        for index, gradient in enumerate(found):
            run.parameters[index], run.states[index] = update(
                settings, run.parameters[index], run.states[index], gradient
            )
        if step % evaluate_every == 0 or step == steps:
            run.curve.append((step, central_loss(central, run.merged, fixed.inputs, fixed.targets)))
    return run
