"""What error feedback on boundary activations does: measured in one process, and supported nowhere.

The same training as a sharded run's, cut and compressed alike; with feedback, each boundary (a cut and a direction)
carries what its codec dropped over to the next batch's boundary, which belongs to other samples.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from training.arrays import FloatArray
from training.baseline_files import CommittedBaseline
from training.boundary_codec.codec import decode, encode
from training.boundary_codec.feedback import WHY_UNSUPPORTED, ErrorFeedback
from training.optimizers import start, update
from training.tokens import Corpus, batch_generator, draw_batch, evaluation_batch
from training.transformer.head import cross_entropy
from training.transformer.initial import initial_parameters
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import ShardSpec, cut, even_cuts, merge_parameters
from training.transformer.step import central_loss

Encode = Callable[[FloatArray], bytes]


@dataclass(slots=True)
class Crossings:
    """What each boundary is coded by: `coders[cut, direction]`."""

    keep_percent: int
    bits: int
    feedback: bool
    coders: dict[tuple[int, str], Encode]
    payload_bytes: int = 0

    def cross(self, place: tuple[int, str], values: FloatArray) -> FloatArray:
        """Code and decode."""
        if place not in self.coders:
            plain: Encode = lambda dense: encode(dense, self.keep_percent, self.bits)  # noqa: E731
            self.coders[place] = ErrorFeedback(self.keep_percent, self.bits).encode if self.feedback else plain
        payload = self.coders[place](values)
        self.payload_bytes = len(payload)
        return decode(payload, values.size).reshape(values.shape)


def measure(
    baseline: CommittedBaseline, corpus: Corpus, shards: int, keep_percent: int, bits: int, feedback: bool
) -> dict[str, Any]:
    """Train to the end; the final evaluation loss and the bytes of a boundary."""
    config = baseline.config
    assert config.micro_batches == 1, "the baseline has one micro-batch"
    specs = cut(config.model, even_cuts(config.model.block_count, shards))
    parts = [initial_parameters(spec, config.seed) for spec in specs]
    states = [start(config.optimizer, part.size) for part in parts]
    generator, crossings = batch_generator(config.seed), Crossings(keep_percent, bits, feedback, {})
    for _ in range(config.steps):
        batch, generator = draw_batch(corpus.train, config.batch, config.model.context, generator)
        gradients = _gradients(specs, parts, batch.inputs, batch.targets, crossings)
        for index, gradient in enumerate(gradients):
            parts[index], states[index] = update(config.optimizer, parts[index], states[index], gradient)
    fixed = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
    (whole,) = cut(config.model)
    loss = central_loss(whole, merge_parameters(specs, parts), fixed.inputs, fixed.targets)
    through = _through(specs, parts, fixed.inputs, fixed.targets, Crossings(keep_percent, bits, False, {}))
    return {"final_eval_loss": loss, "through_codec": through, "payload_bytes": crossings.payload_bytes}


def _through(
    specs: tuple[ShardSpec, ...], parts: list[FloatArray], inputs: Any, targets: Any, crossings: Crossings
) -> float:
    """The evaluation loss when what crosses is compressed as in training; evaluations themselves cross dense."""
    given = inputs
    for index, (spec, part) in enumerate(zip(specs, parts, strict=True)):
        output, _ = shard_forward(spec, part, given)
        given = output if spec.has_head else crossings.cross((index + 1, "forward"), output)
    return cross_entropy(given, targets)[0]


def _gradients(
    specs: tuple[ShardSpec, ...], parts: list[FloatArray], inputs: Any, targets: Any, crossings: Crossings
) -> list[FloatArray]:
    """Of each shard, for one batch, with what crossed coded and decoded."""
    given, caches = inputs, []
    for index, (spec, part) in enumerate(zip(specs, parts, strict=True)):
        output, cache = shard_forward(spec, part, given)
        caches.append(cache)
        given = output if spec.has_head else crossings.cross((index + 1, "forward"), output)
    _, back = cross_entropy(given, targets)
    gradients: list[FloatArray] = []
    for index in reversed(range(len(specs))):
        returned, gradient = shard_backward(specs[index], parts[index], caches[index], back)
        gradients.insert(0, gradient)
        if returned is not None:
            back = crossings.cross((index, "backward"), returned)
    return gradients


def row(name: str, with_feedback: dict[str, Any], without: dict[str, Any], baseline_loss: float) -> dict[str, Any]:
    """A row of the diagnostic."""
    return {
        "name": name,
        "supported": False,
        "why": WHY_UNSUPPORTED,
        "final_eval_loss": with_feedback["final_eval_loss"],
        "through_codec": with_feedback["through_codec"],
        "without_feedback": without["final_eval_loss"],
        "without_feedback_through_codec": without["through_codec"],
        "delta_to_baseline": with_feedback["final_eval_loss"] - baseline_loss,
        "delta_to_no_feedback": with_feedback["final_eval_loss"] - without["final_eval_loss"],
        "payload_bytes": with_feedback["payload_bytes"],
    }
