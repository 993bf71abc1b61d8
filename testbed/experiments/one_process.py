"""The training of a row in one process: no roles, no messages, no verifier; the same arithmetic in the same order.

What crosses a cut is coded, decoded and scaled by its age exactly as shards do it, so that a row gives the same digits
as its run (a test holds that) in a part of the time. For several seeds, and for what runs do not support.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from training.arrays import FloatArray, IntArray
from training.baseline_files import CommittedBaseline
from training.boundary_codec.codec import decode, encode, encode_dense
from training.boundary_codec.feedback import ErrorFeedback
from training.optimizers import start, update
from training.staleness import DecayConfig, DelayConfig, Direction, decay_weight, delay_ticks
from training.tokens import Corpus, batch_generator, draw_batch, evaluation_batch
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import ShardSpec, cut, even_cuts, merge_parameters
from training.transformer.step import central_loss

IN_PROCESS = "in-process"  # in place of an engine's name
Encode = Callable[[FloatArray], bytes]


@dataclass(frozen=True, slots=True)
class Crossing:
    """How boundaries travel. `compression`: keep_percent and bits; `feedback` carries over what the codec dropped."""

    delay: DelayConfig = field(default_factory=DelayConfig)
    decay: DecayConfig | None = None
    compression: tuple[int, int] | None = None
    feedback: bool = False


class Boundaries:
    """All cuts of one training. Activations are compressed, their gradients are not."""

    def __init__(self, crossing: Crossing, seed: int) -> None:
        self._crossing = crossing
        self._seed = seed
        self._coders: dict[int, Encode] = {}
        self.payload_bytes = 0  # of a forward boundary
        self.ages: Counter[int] = Counter()

    def forward(self, step: int, at: int, values: FloatArray) -> FloatArray:
        """Activations through cut `at`."""
        payload = self._coder(at)(values)
        self.payload_bytes = len(payload)
        return self._aged(step, at, "forward", decode(payload, values.size).reshape(values.shape))

    def backward(self, step: int, at: int, gradient: FloatArray) -> FloatArray:
        """Their gradients through cut `at`."""
        return self._aged(step, at, "backward", gradient)

    def _aged(self, step: int, at: int, direction: Direction, values: FloatArray) -> FloatArray:
        age = delay_ticks(self._crossing.delay, self._seed, step, 0, at, direction)
        self.ages[age] += 1
        decay = self._crossing.decay
        weight = 1.0 if decay is None else decay_weight(age, decay.rate, decay.floor)
        return values if weight == 1.0 else weight * values

    def _coder(self, at: int) -> Encode:
        if at not in self._coders:
            settings = self._crossing.compression
            if settings is None:
                self._coders[at] = lambda values: encode_dense(values.reshape(-1))
            elif self._crossing.feedback:
                self._coders[at] = ErrorFeedback(*settings).encode
            else:
                self._coders[at] = lambda values: encode(values, *settings)
        return self._coders[at]


def train(baseline: CommittedBaseline, corpus: Corpus, shards: int, crossing: Crossing) -> dict[str, Any]:
    """To the end; the final evaluation loss, and what crossed."""
    config = baseline.config
    assert config.micro_batches == 1, "the baseline has one micro-batch"
    specs = cut(config.model, even_cuts(config.model.block_count, shards))
    parts = [initial_parameters(spec, config.seed) for spec in specs]
    states = [start(config.optimizer, part.size) for part in parts]
    generator, boundaries = batch_generator(config.seed), Boundaries(crossing, config.seed)
    for step in range(1, config.steps + 1):
        batch, generator = draw_batch(corpus.train, config.batch, config.model.context, generator)
        gradients = _gradients(specs, parts, (batch.inputs, batch.targets), boundaries, step)
        for index, gradient in enumerate(gradients):
            parts[index], states[index] = update(config.optimizer, parts[index], states[index], gradient)
    fixed = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
    (whole,) = cut(config.model)
    through = Boundaries(Crossing(compression=crossing.compression), config.seed)
    return {
        "final_eval_loss": central_loss(whole, merge_parameters(specs, parts), fixed.inputs, fixed.targets),
        "through_codec": cross_entropy(_logits(specs, parts, fixed.inputs, through), fixed.targets)[0],
        "payload_bytes": boundaries.payload_bytes,
        "ages": {str(age): count for age, count in sorted(boundaries.ages.items())},
    }


def _logits(
    specs: tuple[ShardSpec, ...], parts: list[FloatArray], inputs: IntArray, boundaries: Boundaries
) -> FloatArray:
    """An evaluation whose activations cross as they do in training; real evaluations cross dense."""
    given: Any = inputs
    for spec, part in zip(specs, parts, strict=True):
        given, _ = shard_forward(spec, part, given)
        given = given if spec.has_head else boundaries.forward(0, spec.index + 1, given)
    values: FloatArray = given
    return values


def _gradients(
    specs: tuple[ShardSpec, ...], parts: list[FloatArray], batch: tuple[IntArray, IntArray], boundaries: Boundaries,
    step: int,
) -> list[FloatArray]:  # fmt: skip
    """Of each shard, for one batch."""
    given: Any = batch[0]
    caches = []
    for spec, part in zip(specs, parts, strict=True):
        output, cache = shard_forward(spec, part, given)
        caches.append(cache)
        given = output if spec.has_head else boundaries.forward(step, spec.index + 1, output)
    _, back = cross_entropy(given, batch[1])
    gradients: list[FloatArray] = []
    for index in reversed(range(len(specs))):
        returned, gradient = shard_backward(specs[index], parts[index], caches[index], back)
        gradients.insert(0, gradient)
        if returned is not None:
            back = boundaries.backward(step, index, returned)
    return gradients
