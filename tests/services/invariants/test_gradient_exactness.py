"""Wrong gradients, wrong optimizer steps and wrong skips are caught; figures are published."""

from __future__ import annotations

import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from services.messages import Array
from services.records import Committed, Contributed, StateApplied, StepApplied
from services.reference import Question, Reference
from tests.services.honest_run import HonestRun, Parts, Plan, not_passed
from tests.services.invariants.caught import assert_caught, assert_unknown, find
from training.config import BatchConfig, ModelConfig
from training.models import loss_and_gradient, parameter_count
from training.reduction import reduce_in_order

NAME = "gradient exactness"
MLP = ModelConfig("mlp", 4, 3, 5)


@pytest.mark.parametrize("model", [ModelConfig("softmax", 4, 3), MLP], ids=["softmax", "mlp"])
def test_a_member_that_computes_wrongly_is_named(model: ModelConfig) -> None:
    def slightly_off(step: int, worker: int, gradient: Array) -> Array:
        return gradient * (1 + 1e-9) if (step, worker) == (4, 2) else gradient

    run = HonestRun(Plan(model=model, gradient=slightly_off))
    assert_caught(run, NAME, 4, "worker-2", "the contribution of worker-2 differs")


def test_one_wrong_bit_in_the_middle_is_seen() -> None:
    def one_bit(step: int, worker: int, gradient: Array) -> Array:
        bits = gradient.copy()
        if (step, worker) == (2, 1):
            bits.view(np.uint64)[3] ^= np.uint64(1) << np.uint64(20)
        return bits

    assert_caught(HonestRun(Plan(gradient=one_bit)), NAME, 2, "worker-1", "element 3")


@pytest.mark.parametrize("model", [ModelConfig("softmax", 4, 3), MLP], ids=["softmax", "mlp"])
@pytest.mark.parametrize("factor", [1 + 1e-11, 0.5, float("nan"), float("inf")])
def test_a_loss_that_is_not_that_of_the_samples(factor: float, model: ModelConfig) -> None:
    honest = HonestRun(Plan(model=model))
    (told,) = [
        one.fact
        for one in honest.told
        if isinstance(one.fact, Contributed) and (one.fact.step, one.fact.worker) == (3, 2)
    ]
    lied = HonestRun(Plan(model=model)).replace(Contributed, {"step": 3, "worker": 2}, loss=told.loss * factor)
    assert_caught(lied, NAME, 3, "worker-2", "a loss of")
    (committed,) = [one.fact for one in honest.told if isinstance(one.fact, Committed) and one.fact.step == 3]
    wrong = HonestRun(Plan(model=model)).replace(Committed, {"step": 3}, loss=committed.loss * factor)
    assert_caught(wrong, NAME, 3, "coordinator", "committed with a loss of")


@given(st.integers(0, 2**32), st.floats(-3, 4), st.sampled_from([ModelConfig("softmax", 4, 3), MLP]))
def test_two_ways_to_compute_a_loss_differ_by_less_than_its_tolerance(
    seed: int, magnitude: float, model: ModelConfig
) -> None:
    generator = np.random.default_rng(seed)
    features, labels = generator.normal(size=(12, 4)), generator.integers(0, 3, 12)
    parameters = generator.normal(size=parameter_count(model)) * 10**magnitude
    groups = ((0, 5, 1), (2,), (3, 4, 6, 7, 8, 9, 10, 11))
    shape = {"kind": model.kind, "feature_count": 4, "class_count": 3, "hidden_count": model.hidden_count}
    own = Reference(shape, features, labels).losses(Question(parameters, groups))
    told = [loss_and_gradient(model, parameters, features[list(ids)], labels[list(ids)])[0] for ids in groups]
    assert np.abs(np.array(told) - own.groups).max() <= own.tolerance
    weighed = sum(loss * len(ids) for loss, ids in zip(told, groups, strict=True)) / 12
    assert abs(weighed - own.union) <= own.tolerance
    assert own.tolerance <= 1e-9 * max(1.0, 10 ** (2 * magnitude))


def _without_the_second(step: int, parts: Parts) -> Array:
    return reduce_in_order(parts[:1] + parts[2:]) if step == 3 else reduce_in_order(parts)


def _second_twice(step: int, parts: Parts) -> Array:
    total = sum(count for _, count, _ in parts)
    return reduce_in_order(parts) + (parts[1][1] / total) * parts[1][2] if step == 3 else reduce_in_order(parts)


def _mean_of_means(step: int, parts: Parts) -> Array:
    return reduce_in_order([(worker, 1, gradient) for worker, _, gradient in parts])


@pytest.mark.parametrize("reduced", [_without_the_second, _second_twice], ids=["dropped", "doubled"])
def test_a_wrong_sum_of_contributions_that_were_not_recorded_whole(reduced: object) -> None:
    plan = dataclasses.replace(Plan(whole=False), reduced=reduced)  # type: ignore[arg-type]
    assert_caught(HonestRun(plan), NAME, 3, "worker-1", "the reduced gradient differs")


def test_a_mean_of_means_where_sizes_differ() -> None:
    plan = Plan(whole=False, batch=BatchConfig("global", 7), reduced=_mean_of_means)
    assert_caught(HonestRun(plan), NAME, 1)


def test_the_optimizer_must_lead_where_everybody_stands() -> None:
    run = HonestRun(Plan(steps=3, checkpoint_every=9))
    wrong = ("a" * 64, "b" * 64)
    for worker in (1, 2, 3):
        where = {"step": 2, "worker": worker, "adopted": False}
        run.replace(StateApplied, where, parameters_digest=wrong[0], velocity_digest=wrong[1])
    rows = tuple((worker, worker, *wrong) for worker in (1, 2, 3))
    run.replace(StepApplied, {"step": 2}, applied=rows)
    assert_caught(run, NAME, 2, "worker-1", "nobody holds the state")


def test_a_skip_needs_something_that_is_not_finite() -> None:
    assert_caught(HonestRun(Plan(skips={3: 2})), NAME, 3, "worker-2", "all contributions are finite")


def test_a_skip_names_the_offender() -> None:
    assert_caught(HonestRun(Plan(spoils={3: 1}, skips={3: 2})), NAME, 3, "coordinator", "the skip names [2]")


def test_a_skip_that_left_no_evidence_is_unknown() -> None:
    run = HonestRun(Plan(spoils={3: 1}, whole=False))
    assert_unknown(run, "step 3 was skipped", NAME)
    document = run.judge()
    assert document["steps_checked"] == document["steps_committed"] - 1


def test_nan_in_the_reduced_value_is_no_agreement() -> None:
    def nan(step: int, parts: Parts) -> Array:
        value = reduce_in_order(parts)
        value[0] = np.nan
        return value

    document = HonestRun(Plan(steps=1, whole=False, reduced=nan)).judge()
    assert not_passed(document) == {NAME: "violated"}


def test_figures_are_published() -> None:
    figures = HonestRun(Plan(batch=BatchConfig("global", 7))).judge()["gradient"]
    assert 0 < figures["noise_floor"] < 1e-13
    assert figures["worst_error"] <= figures["tolerance"] == 4 * figures["noise_floor"]
    assert figures["worst_error_floors"] <= 4
    assert figures["smallest_detectable_bug"] > 1e3 * figures["tolerance"]


def test_ids_beyond_the_data_cannot_be_judged() -> None:
    run = HonestRun(Plan(whole=False))
    committed = run.told[run.places(Committed, step=3)[0]].fact
    assert isinstance(committed, Committed)
    ids = ((99, *committed.sample_ids[0][1:]), *committed.sample_ids[1:])
    document = run.replace(Committed, {"step": 3}, sample_ids=ids).judge()
    assert "step 3 could not be judged" in str(find(document, NAME)["reasons"])
    assert document["steps_checked"] == document["steps_committed"] - 1


@pytest.mark.parametrize("learning_rate", [1e13, 1e150, 1e300])
@pytest.mark.parametrize("model", [ModelConfig("softmax", 4, 3), MLP])
def test_where_rounding_alone_makes_as_much_as_a_gradient_nothing_is_proved(
    model: ModelConfig, learning_rate: float
) -> None:
    """A diverged run: any gradient would be within the tolerance, or, where that overflows, none."""
    run = HonestRun(Plan(model=model, learning_rate=learning_rate))
    assert_unknown(run, "so large that rounding alone", NAME)
    document = run.judge()
    assert document["steps_checked"] < document["steps_committed"]
    assert any("committed steps were checked; the first that was not: 2" in why for why in document["reasons"])


@pytest.mark.parametrize("learning_rate", [50.0, 1e4])
def test_a_large_learning_rate_is_no_reason(learning_rate: float) -> None:
    assert HonestRun(Plan(learning_rate=learning_rate)).judge()["verdict"] == "pass"
