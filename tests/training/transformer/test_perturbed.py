"""What boundaries suffer changes the training, measurably and the same way again; otherwise nothing changes."""

from __future__ import annotations

import functools
from typing import Any

import pytest

from tests.training.transformer.simulated import Boundaries, Run, train
from training.adamw import AdamWConfig
from training.staleness import DecayConfig, DelayConfig
from training.synthetic_language import synthetic_corpus
from training.transformer.config import TransformerConfig
from training.transformer.sharding import cut

MODEL = TransformerConfig(9, block_count=3, width=8, head_count=2, mlp_width=12, context=6)
CORPUS = synthetic_corpus(3, vocabulary_size=9, train_tokens=400, evaluation_tokens=100)
JITTER = DelayConfig(1, 1, 0.5)


def run(**boundaries: Any) -> Run:
    perturbed = Boundaries(seed=4, **boundaries)
    return train(cut(MODEL, (1, 2)), CORPUS, AdamWConfig(), 30, perturbed, batch_size=4, micro_batch_count=2)


PERTURBATIONS: dict[str, dict[str, Any]] = {
    "decay-1": {"delay": DelayConfig(1), "decay": DecayConfig()},
    "decay-2": {"delay": DelayConfig(2), "decay": DecayConfig()},
    "decay-jitter-reorder": {"delay": JITTER, "decay": DecayConfig()},
    "top50-6bit": {"compression": (50, 6)},
    "top50-6bit-forward": {"compression": (50, 6), "backward_too": False},
    "top50-6bit-decay-1": {"compression": (50, 6), "delay": DelayConfig(1), "decay": DecayConfig()},
    "top25-8bit-feedback": {"compression": (25, 8), "feedback": True},
}


@functools.cache
def control_run() -> Run:
    return run()


@pytest.mark.parametrize("name", PERTURBATIONS)
def test_it_changes_the_curve_and_the_same_way_again(name: str) -> None:
    boundaries = PERTURBATIONS[name]
    control, first, again = control_run(), run(**boundaries), run(**boundaries)
    assert first.curve == again.curve
    assert first.merged.tobytes() == again.merged.tobytes()
    assert first.curve[0] == control.curve[0]
    assert abs(first.curve[-1][1] - control.curve[-1][1]) > 1e-6


def test_age_zero_or_no_decay_changes_nothing() -> None:
    control = control_run()
    for boundaries in ({"decay": DecayConfig()}, {"delay": JITTER}, {"delay": JITTER, "decay": DecayConfig(0.0)}):
        assert run(**boundaries).merged.tobytes() == control.merged.tobytes()


def test_more_bits_and_more_values_come_closer() -> None:
    exact = run(compression=(100, 12)).curve[-1][1] - control_run().curve[-1][1]
    rough = run(compression=(25, 4)).curve[-1][1] - control_run().curve[-1][1]
    assert abs(exact) < abs(rough) / 3
