"""What a commit names is what was closed, recorded and summed, once each, in ascending order."""

from __future__ import annotations

from typing import Any

from services.judge import Judge
from services.messages import Array
from services.records import Closed, Committed, Contributed, Reduced, StateApplied, Summed
from tests.services.honest_run import HonestRun, Parts, Plan, end_line
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


def test_a_sum_of_an_attempt_that_nobody_closed() -> None:
    run = HonestRun()
    run.insert_before(Committed, {"step": 2}, "server", Summed("server", 2, 5, 1, (1, 2, 3)))
    assert_caught(run, NAME, 2, "server", "attempt 5 of step 2, generation 1, which was never closed")


def test_a_sum_of_an_attempt_that_a_dead_coordinator_may_have_closed() -> None:
    """Its last records died with it, and none came back to read its log."""
    run = HonestRun()
    run.insert_before(Committed, {"step": 2}, "server", Summed("server", 2, 5, 1, (1, 2, 3)))
    assert_unknown_with(run, {"coordinator/1": "killed"}, "its close is not, or no longer, here")


def test_a_coordinator_that_came_back_has_read_all_its_closes() -> None:
    run = HonestRun(Plan(coordinator_returns_after=(3,)))
    run.insert_before(Committed, {"step": 2}, "server", Summed("server", 2, 5, 1, (1, 2, 3)))
    document = judged(run, {"coordinator/1": "killed"})
    assert find(document, NAME)["first_violation"]["role"] == "server"


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


def judged(run: HonestRun, excused: dict[str, str]) -> dict[str, Any]:
    """The verdict on a history whose end excuses these reporters."""
    judge = Judge(run.dataset)
    lines = run.lines(end=False)
    for line in [*lines, end_line(lines, excused)]:
        judge.feed(line)
    return judge.finish()


def assert_unknown_with(run: HonestRun, excused: dict[str, str], words: str) -> None:
    document = judged(run, excused)
    assert find(document, NAME)["verdict"] == "unknown", find(document, NAME)
    assert words in find(document, NAME)["reasons"][0]


def without_what_2_contributed(step: int, plan: Plan) -> HonestRun:
    """Worker 2 tells nothing of what it contributed to that step."""
    return HonestRun(plan).drop(Contributed, step=step, worker=2)


def test_a_death_excuses_what_was_not_recorded_at_last() -> None:
    """Worker 2 dies in step 4, having contributed to step 3 and applied it: neither is here."""
    run = without_what_2_contributed(3, Plan(dies={4: 2}))
    run.drop(StateApplied, worker=2, step=3).drop(Contributed, worker=2, step=4)
    assert find(run.judge(), NAME)["verdict"] == "pass"


def test_a_death_does_not_excuse_what_is_missing_before_something_that_is_here() -> None:
    run = without_what_2_contributed(2, Plan(dies={4: 2}))
    assert_unknown(run, "step 2 names a contribution of worker-2 that was never recorded", NAME)


def test_nor_does_the_excuse_of_another_process() -> None:
    run = without_what_2_contributed(6, Plan())
    run.drop(StateApplied, worker=2, step=6)
    assert_unknown_with(run, {"worker-2/7": "killed"}, "step 6 names a contribution of worker-2")
    assert find(judged(run, {"worker-2/1": "killed"}), NAME)["verdict"] == "pass"


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
