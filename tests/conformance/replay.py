"""One process, no cluster: the parameters that a recorded run must have ended with, by the training maths alone.

It follows the recorded decisions (who contributed which samples to each step, skips, rollbacks) and nothing else of
the run: gradients, sum and update are computed anew.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy as np

from services.config import RunConfig
from services.messages import Array
from services.records import Committed, Fact, RolledBack, RunStarted
from training.datasets import Dataset
from training.models import initial_parameters, loss_and_gradient
from training.optimizer import apply_sgd
from training.reduction import reduce_in_order

State = tuple[Array, Array]


def replay(facts: Iterable[Fact], dataset: Dataset, start: State | None = None) -> State:
    """(parameters, velocity) after the last committed step. `start` is the resumed state; fresh runs need none."""
    config: RunConfig | None = None
    states: dict[int, State] = {}
    step = 0
    for fact in facts:
        match fact:
            case RunStarted():
                config = RunConfig.from_json(fact.config_json)
                step = fact.step
                states[step] = start or _fresh(config)
            case Committed():
                assert config is not None, "a commit before the run started"
                assert fact.step == step + 1, f"step {fact.step} follows step {step}"
                states[fact.step] = states[step] if fact.skip else _advance(config, states[step], fact, dataset)
                step = fact.step
            case RolledBack():
                step = fact.to_step
    return states[step]


def _fresh(config: RunConfig) -> State:
    parameters = initial_parameters(config.model, config.seed)
    return parameters, np.zeros_like(parameters)


def _advance(config: RunConfig, state: State, fact: Committed, dataset: Dataset) -> State:
    parameters, velocity = state
    contributions = []
    for (worker, _, count), ids in zip(fact.contributors, fact.sample_ids, strict=True):
        assert len(ids) == count, f"worker {worker} is counted with {count} samples and names {len(ids)}"
        rows = np.asarray(ids, dtype=np.int64)
        _, gradient = loss_and_gradient(
            config.model, parameters, dataset.train_features[rows], dataset.train_labels[rows]
        )
        contributions.append((worker, count, gradient))
    return apply_sgd(config.optimizer, parameters, velocity, reduce_in_order(contributions))
