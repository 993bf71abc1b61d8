"""Hand-written gradients against autograd and finite differences, and the behaviour at the edges."""

from __future__ import annotations

import math
import warnings
from typing import Any

import autograd.numpy as anp
import numpy as np
import pytest
from autograd import grad

from training.config import ModelConfig
from training.errors import ContractError
from training.models import evaluate, initial_parameters, loss_and_gradient, parameter_count

SOFTMAX = ModelConfig("softmax", 8, 4)
MLP = ModelConfig("mlp", 8, 4, 5)
MODELS = (SOFTMAX, MLP, ModelConfig("softmax", 1, 2), ModelConfig("mlp", 3, 2, 1))


def batch(config: ModelConfig, rows: int, seed: int = 0) -> tuple[Any, Any]:
    generator = np.random.default_rng(seed)
    features = generator.normal(size=(rows, config.feature_count))
    return features, generator.integers(0, config.class_count, rows)


def reference_loss(config: ModelConfig, parameters: Any, features: Any, labels: Any) -> Any:
    """An independent forward pass that autograd can differentiate."""
    d, c, h = config.feature_count, config.class_count, config.hidden_count
    hidden, rest = features, parameters
    if config.kind == "mlp":
        hidden = anp.tanh(anp.dot(features, rest[: d * h].reshape((d, h))) + rest[d * h : d * h + h])
        rest, d = rest[d * h + h :], h
    logits = anp.dot(hidden, rest[: d * c].reshape((d, c))) + rest[d * c :]
    one_hot = np.eye(c)[labels]
    return anp.mean(anp.log(anp.sum(anp.exp(logits), axis=1)) - anp.sum(logits * one_hot, axis=1))


@pytest.mark.parametrize("config", MODELS)
@pytest.mark.parametrize("rows", [1, 7, 32])
def test_gradient_equals_autograd(config: ModelConfig, rows: int) -> None:
    features, labels = batch(config, rows)
    parameters = initial_parameters(config, 3) + 0.3
    loss, gradient = loss_and_gradient(config, parameters, features, labels)
    assert loss == pytest.approx(float(reference_loss(config, parameters, features, labels)), rel=1e-13)
    expected = grad(lambda flat: reference_loss(config, flat, features, labels))(parameters)
    np.testing.assert_allclose(gradient, expected, rtol=0, atol=1e-14)


@pytest.mark.parametrize("config", MODELS)
def test_gradient_equals_finite_differences(config: ModelConfig) -> None:
    features, labels = batch(config, 9)
    parameters = initial_parameters(config, 4)
    gradient = loss_and_gradient(config, parameters, features, labels)[1]
    for index in range(len(parameters)):
        shift = np.zeros_like(parameters)
        shift[index] = 1e-6
        above = loss_and_gradient(config, parameters + shift, features, labels)[0]
        below = loss_and_gradient(config, parameters - shift, features, labels)[0]
        assert gradient[index] == pytest.approx((above - below) / 2e-6, abs=1e-8)


@pytest.mark.parametrize("config", MODELS)
def test_kind_01_weighted_mean_of_unequal_workers_is_the_full_batch_gradient(config: ModelConfig) -> None:
    features, labels = batch(config, 40)
    parameters = initial_parameters(config, 5)
    whole = loss_and_gradient(config, parameters, features, labels)[1]
    weighted = np.zeros_like(whole)
    for start, stop in ((0, 1), (1, 8), (8, 40)):
        part = loss_and_gradient(config, parameters, features[start:stop], labels[start:stop])[1]
        weighted += (stop - start) / 40 * part
    np.testing.assert_allclose(weighted, whole, rtol=0, atol=1e-12)


def test_parameter_layout() -> None:
    assert parameter_count(SOFTMAX) * 8 == 288
    assert parameter_count(MLP) == 8 * 5 + 5 + 5 * 4 + 4
    weights, bias = np.arange(32.0).reshape(8, 4) / 10, np.array([0.0, 5.0, 0.0, 0.0])
    parameters = np.concatenate([weights.reshape(-1), bias])
    features = np.eye(8)[[2]]
    logits = weights[2] + bias
    loss = evaluate(SOFTMAX, parameters, features, np.array([1]))[0]
    assert loss == pytest.approx(math.log(np.exp(logits).sum()) - logits[1])


def test_initial_parameters_are_seeded_and_distinct() -> None:
    for config in MODELS:
        first = initial_parameters(config, 7)
        assert first.dtype == np.float64
        assert first.shape == (parameter_count(config),)
        assert first.tobytes() == initial_parameters(config, 7).tobytes()
        assert first.tobytes() != initial_parameters(config, 8).tobytes()
        assert len(set(first.tolist())) == len(first)


def test_accuracy_counts_the_largest_logit() -> None:
    parameters = np.concatenate([np.eye(2).reshape(-1), np.zeros(2)])
    config = ModelConfig("softmax", 2, 2)
    features = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 0.0], [0.5, 0.5]])
    loss, accuracy = evaluate(config, parameters, features, np.array([0, 1, 1, 0]))
    assert accuracy == 0.75
    assert loss == pytest.approx(loss_and_gradient(config, parameters, features, np.array([0, 1, 1, 0]))[0], rel=0)


@pytest.mark.parametrize("config", [SOFTMAX, MLP])
@pytest.mark.parametrize("poison", [math.nan, math.inf, -math.inf, 1e308])
def test_kind_09_non_finite_comes_out_without_a_warning(config: ModelConfig, poison: float) -> None:
    features, labels = batch(config, 4)
    parameters = initial_parameters(config, 1)
    parameters[-1] = poison
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loss, gradient = loss_and_gradient(config, parameters, features, labels)
        evaluate(config, parameters, features, labels)
    if poison != 1e308:
        assert not (math.isfinite(loss) and np.isfinite(gradient).all())


def test_inputs_are_left_alone_and_layout_does_not_change_bits() -> None:
    features, labels = batch(SOFTMAX, 32)
    parameters = initial_parameters(SOFTMAX, 2)
    before = features.tobytes(), labels.tobytes(), parameters.tobytes()
    for array in (features, labels, parameters):
        array.setflags(write=False)
    expected = loss_and_gradient(SOFTMAX, parameters, features, labels)[1].tobytes()
    fortran = np.asfortranarray(features)
    assert loss_and_gradient(SOFTMAX, parameters, fortran, labels)[1].tobytes() == expected
    assert (features.tobytes(), labels.tobytes(), parameters.tobytes()) == before


def test_wrong_shapes_and_dtypes_are_refused() -> None:
    features, labels = batch(SOFTMAX, 4)
    parameters = initial_parameters(SOFTMAX, 0)
    for arguments in (
        (parameters, features[:0], labels[:0]),
        (parameters, features[:3], labels),
        (parameters, features[:, :7], labels),
        (parameters[:-1], features, labels),
        (parameters.astype(np.float32), features, labels),
        (parameters, features.astype(np.float32), labels),
        (parameters, features, labels.astype(np.float64)),
        (parameters, features, labels.reshape(2, 2)),
    ):
        with pytest.raises(ContractError):
            loss_and_gradient(SOFTMAX, *arguments)
        with pytest.raises(ContractError):
            evaluate(SOFTMAX, *arguments)
