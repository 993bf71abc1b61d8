"""The centralized baseline: reproducible, equal to every cut, and the committed files are what it gives."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.training.transformer.simulated import train
from training.adamw import AdamWConfig
from training.baseline import BaselineConfig, baseline_steps, run_baseline
from training.baseline_files import (
    CONFIG_FILE,
    CURVE_FILE,
    EVALUATION_FILE,
    baseline_files,
    curve_bytes,
    read_config,
    read_curve,
    read_evaluation,
)
from training.config import OptimizerConfig
from training.corpora import CorpusSpec, load_corpus
from training.errors import ConfigurationError, DataError
from training.synthetic_language import synthetic_corpus
from training.tokens import evaluation_batch
from training.transformer.config import TransformerConfig
from training.transformer.initial import initial_parameters
from training.transformer.sharding import cut

COMMITTED = Path(__file__).resolve().parents[2] / "experiments"
MODEL = TransformerConfig(9, block_count=2, width=8, head_count=2, mlp_width=12, context=6)
CORPUS = synthetic_corpus(3, vocabulary_size=9, train_tokens=400, evaluation_tokens=100)
CONFIG = BaselineConfig(MODEL, seed=3, steps=23, batch=4, micro_batches=3, evaluation_contexts=4)


def test_curves_and_reproducibility() -> None:
    first, again = run_baseline(CONFIG, CORPUS), run_baseline(CONFIG, CORPUS)
    assert [step for step, _ in first.loss_curve] == list(range(1, 24))
    assert [step for step, _ in first.evaluation_curve] == [0, 10, 20, 23]
    assert first.final_evaluation_loss < first.evaluation_curve[0][1] == pytest.approx(math.log(9), abs=0.3)
    assert first.parameters.tobytes() == again.parameters.tobytes()
    assert (first.loss_curve, first.evaluation_curve) == (again.loss_curve, again.evaluation_curve)
    assert first.skipped == ()
    other = run_baseline(replace(CONFIG, seed=4), CORPUS)
    assert other.final_evaluation_loss != first.final_evaluation_loss


@pytest.mark.parametrize("optimizer", [AdamWConfig(), OptimizerConfig(0.1, 0.9)])
def test_a_cut_model_equals_the_baseline(optimizer: Any) -> None:
    config = replace(CONFIG, optimizer=optimizer)
    reference = run_baseline(config, CORPUS)
    run = train(
        cut(MODEL, (1,)), CORPUS, optimizer, 23, seed=3, batch_size=4, micro_batch_count=3, evaluation_contexts=4
    )
    assert run.merged.tobytes() == reference.parameters.tobytes()
    assert tuple(run.curve) == reference.evaluation_curve
    assert tuple(run.losses) == tuple(loss for _, loss in reference.loss_curve)


def test_no_step_at_all() -> None:
    result = run_baseline(replace(CONFIG, steps=0), CORPUS)
    assert len(result.evaluation_curve) == 1
    assert result.parameters.tobytes() == initial_parameters(cut(MODEL)[0], 3).tobytes()


def test_kind_09_a_non_finite_gradient_skips_the_step() -> None:
    """A learning rate that throws the parameters to 1e300: the second gradient overflows, and nothing moves again."""
    config = replace(CONFIG, optimizer=OptimizerConfig(1e300), steps=4, micro_batches=1)
    done = list(baseline_steps(config, CORPUS))
    assert [step.skipped for step in done] == [False, False, True, True, True]
    assert done[4].parameters is done[1].parameters
    assert done[4].optimizer_state.step_count == 1
    assert run_baseline(config, CORPUS).skipped == (2, 3, 4)


def test_settings_and_corpora_that_do_not_fit_are_refused() -> None:
    wrong: list[Any] = [{"batch": 0}, {"micro_batches": 5, "batch": 4}, {"steps": -1}]
    for settings in [*wrong, {"evaluate_every": 0}, {"seed": -1}]:
        with pytest.raises(ConfigurationError):
            BaselineConfig(MODEL, **settings)
    with pytest.raises(DataError, match="vocabulary of 9, the model one of 10"):
        run_baseline(replace(CONFIG, model=replace(MODEL, vocabulary_size=10)), CORPUS)
    with pytest.raises(DataError, match="context of 100"):
        run_baseline(replace(CONFIG, model=replace(MODEL, context=100)), CORPUS)


@pytest.mark.parametrize("optimizer", [AdamWConfig(1e-3), OptimizerConfig(0.1, 0.9)])
def test_files_can_be_read_back(optimizer: Any) -> None:
    spec = CorpusSpec("synthetic", seed=3, vocabulary_size=9)
    corpus, config = load_corpus(spec), replace(CONFIG, optimizer=optimizer, steps=3)
    result = run_baseline(config, corpus)
    files = baseline_files(config, spec, corpus, result)
    assert files == baseline_files(config, spec, corpus, result)
    committed = read_config(files[CONFIG_FILE])
    assert (committed.config, committed.corpus, committed.corpus_sha256) == (config, spec, corpus.sha256)
    batch = read_evaluation(files[EVALUATION_FILE], committed.evaluation_sha256)
    expected = evaluation_batch(corpus.evaluation, 4, 6)
    for part in ("inputs", "targets", "starts"):
        assert getattr(batch, part).tolist() == getattr(expected, part).tolist()
    losses, evaluations = read_curve(files[CURVE_FILE])
    assert (tuple(losses.items()), tuple(evaluations.items())) == (result.loss_curve, result.evaluation_curve)


def test_a_changed_artifact_is_refused() -> None:
    committed = read_config((COMMITTED / CONFIG_FILE).read_bytes())
    content = (COMMITTED / EVALUATION_FILE).read_bytes()
    read_evaluation(content, committed.evaluation_sha256)
    body = json.loads(content)
    body["tokens"][3][5] ^= 1
    for bad, expected in (
        (json.dumps(body).encode(), committed.evaluation_sha256),
        (content, "0" * 64),
        (content.replace(b'"format": 1', b'"format": 2'), committed.evaluation_sha256),
        (content[:-20], committed.evaluation_sha256),
        (b"[]", committed.evaluation_sha256),
        (b'{"format": 1, "tokens": [1, 2], "starts": [], "sha256": ""}', committed.evaluation_sha256),
    ):
        with pytest.raises(DataError, match=EVALUATION_FILE):
            read_evaluation(bad, expected)


@pytest.mark.parametrize("change", ["steps", "corpus", "optimizer", "model", "evaluation_sha256"])
def test_a_damaged_configuration_is_refused(change: str) -> None:
    body = json.loads((COMMITTED / CONFIG_FILE).read_bytes())
    body["extra" if change == "steps" else change] = 1
    if change == "evaluation_sha256":
        del body[change]
    with pytest.raises(DataError, match=CONFIG_FILE):
        read_config(json.dumps(body).encode())


def test_a_damaged_curve_is_refused() -> None:
    for bad in (
        b"step,loss\n1,2\n",
        b"step,loss,evaluation_loss\nx,1,2\n",
        b"step,loss,evaluation_loss\n1,x,2\n",
        b"\xff",
    ):
        with pytest.raises(DataError, match=CURVE_FILE):
            read_curve(bad)
    assert read_curve(curve_bytes(run_baseline(replace(CONFIG, steps=0), CORPUS)))[0] == {}


def test_the_committed_files_are_what_the_baseline_gives() -> None:
    """Within 1e-9 of the file on any machine; the artifact and the configuration byte for byte."""
    names = (CONFIG_FILE, EVALUATION_FILE, CURVE_FILE)
    content = {name: (COMMITTED / name).read_bytes() for name in names}
    committed = read_config(content[CONFIG_FILE])
    corpus = load_corpus(committed.corpus)
    assert corpus.sha256 == committed.corpus_sha256
    result = run_baseline(committed.config, corpus)
    fresh = baseline_files(committed.config, committed.corpus, corpus, result)
    assert fresh[CONFIG_FILE] == content[CONFIG_FILE]
    assert fresh[EVALUATION_FILE] == content[EVALUATION_FILE]
    losses, evaluations = read_curve(content[CURVE_FILE])
    for committed_curve, curve in ((losses, result.loss_curve), (evaluations, result.evaluation_curve)):
        assert list(committed_curve) == [step for step, _ in curve]
        np.testing.assert_allclose(list(committed_curve.values()), [loss for _, loss in curve], rtol=0, atol=1e-9)
