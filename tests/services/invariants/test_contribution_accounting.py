"""What a commit names is what was closed, recorded and summed, once each, in ascending order."""

from __future__ import annotations

from services.messages import Array
from services.records import Closed, Committed, Contributed, Reduced, Summed
from tests.services.honest_run import HonestRun, Parts, Plan
from tests.services.invariants.caught import assert_caught, assert_unknown, find
from training.config import BatchConfig
from training.reduction import add_in_order, reduce_in_order, scaled

NAME = "contribution accounting"


def test_a_sum_in_another_order() -> None:
    def backwards(step: int, parts: Parts) -> Array:
        total = sum(count for _, count, _ in parts)
        result = scaled(parts[-1][2], parts[-1][1], total)
        for _, count, gradient in reversed(parts[:-1]):
            result = add_in_order(result, scaled(gradient, count, total))
        return result

    assert_caught(HonestRun(Plan(reduced=backwards)), NAME, words="another order of the same sum")


def test_a_sum_divided_at_its_end() -> None:
    def divided(step: int, parts: Parts) -> Array:
        total = sum(count for _, count, _ in parts)
        result = parts[0][1] * parts[0][2]
        for _, count, gradient in parts[1:]:
            result = result + count * gradient
        divided: Array = result / total
        return divided

    assert_caught(HonestRun(Plan(reduced=divided, batch=BatchConfig("global", 7))), NAME)


def test_the_mistake_is_named() -> None:
    def without_the_second(step: int, parts: Parts) -> Array:
        return reduce_in_order(parts[:1] + parts[2:]) if step == 3 else reduce_in_order(parts)

    document = HonestRun(Plan(reduced=without_the_second)).judge()
    assert "a sum without worker 2, the rest re-weighted" in find(document, NAME)["first_violation"]["what"]


def test_the_order_that_the_value_carries() -> None:
    run = HonestRun().replace(Reduced, {"step": 2}, order=(1, 3, 2))
    assert_caught(run, NAME, 2, "worker-1", "[1, 3, 2]")


def test_one_contribution_counted_twice_in_the_order() -> None:
    run = HonestRun().replace(Reduced, {"step": 2}, order=(1, 2, 2, 3))
    assert_caught(run, NAME, 2, "worker-1")


def test_a_server_that_summed_others_than_were_closed() -> None:
    run = HonestRun()
    run.insert_before(Committed, {"step": 2}, "server", Summed("server", 2, 0, 1, (1, 2)))
    assert_caught(run, NAME, 2, "server", "where [1, 2, 3] were closed")


def test_a_commit_of_others_than_were_closed() -> None:
    run = HonestRun()
    run.replace(Closed, {"step": 2}, contributors=((1, 1, 3), (2, 2, 3)), total=6)
    assert_caught(run, NAME, 2, "coordinator", "were closed")


def test_a_commit_with_another_total() -> None:
    assert_caught(
        HonestRun(Plan(whole=False)).replace(Committed, {"step": 2}, total=10), NAME, 2, "coordinator", "N = 10"
    )


def test_a_commit_that_swaps_the_samples_of_two_workers() -> None:
    run = HonestRun(Plan(whole=False))
    told = run.told[run.places(Committed, step=3)[0]].fact
    assert isinstance(told, Committed)
    first, second, third = told.sample_ids
    assert_caught(run.replace(Committed, {"step": 3}, sample_ids=(second, first, third)), NAME, 3, "worker-1")


def test_a_digest_that_is_not_that_of_the_gradient() -> None:
    run = HonestRun()
    place = run.places(Contributed, step=3, worker=2)[0]
    told = run.told[place].fact
    assert isinstance(told, Contributed)
    assert told.gradient is not None
    run.replace(Contributed, {"step": 3, "worker": 2}, gradient=told.gradient * 2)
    document = run.judge()
    assert find(document, NAME)["verdict"] == "violated"
    assert find(document, NAME)["first_violation"]["role"] == "worker-2"


def test_a_contribution_that_was_never_recorded() -> None:
    run = HonestRun().replace(Contributed, {"step": 3, "worker": 2}, step=99)
    assert_unknown(run, "step 3 names a contribution of worker-2 that was never recorded", NAME)


def test_a_digest_that_is_not_that_of_what_was_recorded() -> None:
    run = HonestRun()
    told = run.told[run.places(Committed, step=3)[0]].fact
    assert isinstance(told, Committed)
    run.replace(Committed, {"step": 3}, digests=(told.digests[0], "0" * 64, told.digests[2]))
    assert_caught(run, NAME, 3, "worker-2", "another gradient over these samples than it recorded")


def test_whoever_weighs_its_gradient_otherwise_is_named() -> None:
    def lying(step: int, parts: Parts) -> Array:
        value = reduce_in_order(parts)
        worker, count, gradient = parts[2]
        assert worker == 3
        return value - 0.25 * (count / sum(part[1] for part in parts)) * gradient if step == 3 else value

    document = HonestRun(Plan(reduced=lying)).judge()
    first = find(document, NAME)["first_violation"]
    assert (first["step"], first["role"]) == (3, "worker-3")
    assert "counts what it contributed 0.75 times" in first["what"]
