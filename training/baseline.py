"""The centralized baseline: the uncut model trained in one piece, step by step. What every sharded run has to equal.

    seed -> initial parameters (`training.transformer.initial`) and the generator of the batches (`training.tokens`)
    step: draw a batch, `central_gradient` over its micro-batches, `training.optimizers.update`
    evaluation: `central_loss` over the fixed `evaluation_batch`, at step 0, every `evaluate_every` steps, at the end

A step whose gradient is not finite is skipped, as in a distributed run: it counts, and nothing changes.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field

import numpy as np

from training.adamw import AdamWConfig
from training.arrays import FloatArray
from training.errors import ConfigurationError, DataError
from training.optimizers import OptimizerSettings, OptimizerState, start, update
from training.tokens import Corpus, batch_generator, draw_batch, evaluation_batch, require_context
from training.transformer.config import TransformerConfig
from training.transformer.initial import initial_parameters
from training.transformer.sharding import cut
from training.transformer.step import central_gradient, central_loss, micro_batches


@dataclass(frozen=True, slots=True)
class BaselineConfig:
    """What decides a central run. `batch` and `evaluation_contexts` count contexts, `evaluate_every` steps.

    The defaults are those of the layer-sharded prototype. Raises ConfigurationError.
    """

    model: TransformerConfig
    optimizer: OptimizerSettings = field(default_factory=AdamWConfig)
    seed: int = 0
    steps: int = 100
    batch: int = 8
    micro_batches: int = 1
    evaluate_every: int = 10
    evaluation_contexts: int = 32

    def __post_init__(self) -> None:
        minima = {"seed": 0, "steps": 0, "batch": 1, "micro_batches": 1, "evaluate_every": 1, "evaluation_contexts": 1}
        for name, minimum in minima.items():
            value = getattr(self, name)
            if not isinstance(value, int) or isinstance(value, bool) or value < minimum:
                raise ConfigurationError(
                    f"baseline.{name} is {value!r}; it must be a whole number of at least {minimum}"
                )
        micro_batches(self.batch, self.micro_batches)


@dataclass(frozen=True, slots=True, eq=False)
class BaselineStep:
    """After `step` (0: nothing trained yet). `loss` is the batch's before the update, nats per token, None at step 0;
    `evaluation_loss` None where none is due; `skipped` when the gradient was not finite. parameters float64 (P,)."""

    step: int
    loss: float | None
    evaluation_loss: float | None
    skipped: bool
    parameters: FloatArray
    optimizer_state: OptimizerState


@dataclass(frozen=True, slots=True, eq=False)
class BaselineResult:
    """Curves as (step, nats per token), the steps that were skipped, and the final parameters, float64 (P,)."""

    loss_curve: tuple[tuple[int, float], ...]
    evaluation_curve: tuple[tuple[int, float], ...]
    skipped: tuple[int, ...]
    parameters: FloatArray

    @property
    def final_evaluation_loss(self) -> float:
        """The number that a sharded run is compared with."""
        return self.evaluation_curve[-1][1]


def run_baseline(config: BaselineConfig, corpus: Corpus) -> BaselineResult:
    """Train to the end. Raises as `baseline_steps` does."""
    loss_curve, evaluation_curve, skipped = [], [], []
    parameters = np.empty(0)
    for done in baseline_steps(config, corpus):
        parameters = done.parameters
        if done.loss is not None:
            loss_curve.append((done.step, done.loss))
        if done.evaluation_loss is not None:
            evaluation_curve.append((done.step, done.evaluation_loss))
        if done.skipped:
            skipped.append(done.step)
    return BaselineResult(tuple(loss_curve), tuple(evaluation_curve), tuple(skipped), parameters)


def baseline_steps(config: BaselineConfig, corpus: Corpus) -> Iterator[BaselineStep]:
    """Step 0, then one after the other. Raises DataError when the corpus does not fit the model."""
    require_fitting(config.model, corpus)
    (spec,) = cut(config.model)
    fixed = evaluation_batch(corpus.evaluation, config.evaluation_contexts, config.model.context)
    parameters = initial_parameters(spec, config.seed)
    state = start(config.optimizer, spec.parameter_count)
    generator = batch_generator(config.seed)
    yield BaselineStep(0, None, central_loss(spec, parameters, fixed.inputs, fixed.targets), False, parameters, state)
    for step in range(1, config.steps + 1):
        batch, generator = draw_batch(corpus.train, config.batch, config.model.context, generator)
        loss, gradient = central_gradient(spec, parameters, batch.inputs, batch.targets, config.micro_batches)
        skipped = not np.isfinite(gradient).all()
        if not skipped:
            parameters, state = update(config.optimizer, parameters, state, gradient)
        evaluated = None
        if step % config.evaluate_every == 0 or step == config.steps:
            evaluated = central_loss(spec, parameters, fixed.inputs, fixed.targets)
        yield BaselineStep(step, loss, evaluated, skipped, parameters, state)


def require_fitting(model: TransformerConfig, corpus: Corpus) -> None:
    """Raise DataError unless the corpus has the model's vocabulary and is long enough for its context."""
    if corpus.vocabulary_size != model.vocabulary_size:
        raise DataError(
            f"corpus {corpus.name} has a vocabulary of {corpus.vocabulary_size}, the model one of"
            f" {model.vocabulary_size}; make the model for this corpus"
        )
    require_context(corpus, model.context)
