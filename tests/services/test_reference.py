"""The reference gradient: right by finite differences, by sample as by group, and nearer to the truth than rounding."""

from __future__ import annotations

import math

import numpy as np
import pytest

from services.reference import EPS, TOLERANCE_FLOORS, Question, Reference, sum_segments
from training.config import ModelConfig
from training.models import evaluate, loss_and_gradient, parameter_count
from training.reduction import reduce_in_order

MODELS = {"softmax": ModelConfig("softmax", 6, 4), "mlp": ModelConfig("mlp", 6, 4, 5)}


def reference_of(config: ModelConfig, features: object, labels: object) -> Reference:
    model = {
        "kind": config.kind,
        "feature_count": config.feature_count,
        "class_count": config.class_count,
        "hidden_count": config.hidden_count,
    }
    return Reference(model, features, labels)  # type: ignore[arg-type]


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("scale", [1e-3, 1.0, 30.0])
@pytest.mark.parametrize("sizes", [(8, 8, 8), (1, 7, 32), (5,)])
def test_production_is_within_a_few_noise_floors(name: str, scale: float, sizes: tuple[int, ...]) -> None:
    config = MODELS[name]
    random = np.random.default_rng(len(sizes))
    features = random.normal(size=(60, 6)) * scale
    labels = random.integers(0, 4, 60)
    parameters = random.normal(size=parameter_count(config))
    ids = random.permutation(60).tolist()
    groups = []
    for size in sizes:
        groups.append(tuple(ids[:size]))
        ids = ids[size:]
    gradients = [loss_and_gradient(config, parameters, features[list(g)], labels[list(g)])[1] for g in groups]
    reduced = reduce_in_order([(place, len(g), gradients[place]) for place, g in enumerate(groups)])
    reference = reference_of(config, features, labels)
    question = Question(parameters, tuple(groups))
    for answers in (reference._by_sample([question]), reference._by_group([question])):
        assert np.abs(answers.unions[0] - reduced).max() <= TOLERANCE_FLOORS * answers.union_floors[0]
        for place, gradient in enumerate(gradients):
            assert np.abs(answers.groups[place] - gradient).max() <= TOLERANCE_FLOORS * answers.group_floors[place]
        assert answers.union_floors[0] < 1e-9 * max(1.0, float(np.abs(reduced).max()), scale)


@pytest.mark.parametrize("name", MODELS)
def test_contributors_differentiated_together_and_one_by_one(name: str) -> None:
    config, random = MODELS[name], np.random.default_rng(3)
    reference = reference_of(config, random.normal(size=(40, 6)), random.integers(0, 4, 40))
    questions = [
        Question(
            random.normal(size=parameter_count(config)), tuple(tuple(random.permutation(40)[:5]) for _ in range(3))
        )
        for _ in range(2)
    ]
    together, singly = reference._by_stacked_group(questions), reference._by_group(questions)
    for place in range(2):
        difference = np.abs(together.unions[place] - singly.unions[place]).max()
        assert difference <= TOLERANCE_FLOORS * singly.union_floors[place]
    assert np.allclose(together.groups, singly.groups, rtol=1e-12, atol=1e-14)
    assert np.allclose(together.group_floors, singly.group_floors, rtol=1e-12)
    assert np.allclose(together.union_floors, singly.union_floors, rtol=1e-12)
    assert (together.counts.tolist(), together.starts.tolist()) == (singly.counts.tolist(), singly.starts.tolist())


@pytest.mark.parametrize("name", MODELS)
def test_finite_differences(name: str) -> None:
    config = MODELS[name]
    random = np.random.default_rng(2)
    features, labels = random.normal(size=(9, 6)), random.integers(0, 4, 9)
    parameters = random.normal(size=parameter_count(config))
    gradient = reference_of(config, features, labels).answer([Question(parameters, (tuple(range(9)),))]).unions[0]
    for at in range(len(parameters)):
        step = np.zeros_like(parameters)
        step[at] = 1e-5
        up, down = (evaluate(config, parameters + sign * step, features, labels)[0] for sign in (1, -1))
        assert gradient[at] == pytest.approx((up - down) / 2e-5, abs=1e-8)


def test_many_questions_of_unlike_sizes_at_once() -> None:
    config = MODELS["mlp"]
    random = np.random.default_rng(3)
    features, labels = random.normal(size=(40, 6)), random.integers(0, 4, 40)
    reference = reference_of(config, features, labels)
    shapes = [(3, 3), (1,), (2, 5, 1), (4,)]
    questions = []
    for shape in shapes:
        groups = tuple(tuple(random.permutation(40)[:size].tolist()) for size in shape)
        questions.append(Question(random.normal(size=parameter_count(config)), groups))
    together = reference.answer(questions)
    assert together.counts.tolist() == [len(shape) for shape in shapes]
    for place, question in enumerate(questions):
        alone = reference.answer([question])
        assert np.array_equal(together.unions[place], alone.unions[0])
        start = int(together.starts[place])
        assert np.array_equal(together.groups[start : start + len(shapes[place])], alone.groups)


def test_sums_are_those_of_fsum() -> None:
    random = np.random.default_rng(4)
    values = random.normal(size=(50, 3)) * 10.0 ** random.integers(-12, 12, (50, 3))
    values[10:20] = -values[:10]
    lengths = np.array([7, 30, 1, 12])
    high, low = sum_segments(values, None, lengths)
    start = 0
    for row, length in enumerate(lengths.tolist()):
        part = values[start : start + length]
        for column in range(3):
            exact = math.fsum(part[:, column].tolist())
            assert abs((high[row, column] + low[row, column]) - exact) <= EPS * abs(exact)
        start += length


def test_another_kind_of_model_is_refused() -> None:
    with pytest.raises(ValueError, match="no reference"):
        Reference(
            {"kind": "cnn", "feature_count": 1, "class_count": 2, "hidden_count": 0}, np.ones((1, 1)), np.array([0])
        )
