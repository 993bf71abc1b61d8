"""Medians, quartiles and ratios by hand, and the shape of a figure as `--json` prints it."""

from __future__ import annotations

import json

import pytest

from testbed.bench.figures import Goal, Peer, figure, quartiles, times_as_fast, times_the_cost
from testbed.bench.table import summary, table


def test_a_figure_is_the_median_with_its_quartiles() -> None:
    found = figure("x", [4.0, 1.0, 3.0, 2.0, 5.0], "us")
    assert (found.value, found.spread, found.n) == (3.0, (2.0, 4.0), 5)


def test_one_sample_has_no_spread_and_none_is_refused() -> None:
    assert quartiles([7.0]) == (7.0, 7.0)
    with pytest.raises(ValueError, match="no sample"):
        quartiles([])


def test_speed_is_the_peers_time_over_ours() -> None:
    found = times_as_fast("x", [2.0, 2.0, 2.0], Peer("p", [5.0, 6.0, 7.0], "us"), goal=Goal("at_least", 1.0))
    assert (found.value, found.spread, found.n) == (3.0, (2.75, 3.25), 3)
    assert (found.peer, found.peer_value, found.peer_unit, found.own_value) == ("p", 6.0, "us", 2.0)


def test_cost_is_ours_over_the_peers_and_its_spread_pairs_opposite_quartiles() -> None:
    found = times_the_cost("x", [10.0, 20.0, 30.0], Peer("p", [4.0, 5.0, 6.0], "ns/B"))
    assert found.value == 4.0
    assert found.spread == (15.0 / 5.5, 25.0 / 4.5)


@pytest.mark.parametrize(
    ("goal", "value", "met"),
    [
        (Goal("at_least", 2.0), 2.0, True),
        (Goal("at_least", 2.0), 1.9, False),
        (Goal("at_most", 2.0), 2.0, True),
        (Goal("at_most", 2.0), 2.1, False),
    ],
)
def test_goals(goal: Goal, value: float, met: bool) -> None:
    assert goal.met_by(value) is met


def test_the_document_says_everything_and_is_json() -> None:
    ratio = times_as_fast("x", [2.0], Peer("p", [6.0], "us"), goal=Goal("at_least", 4.0)).under("load average 1.0")
    document = json.loads(json.dumps(ratio.document()))
    assert document == {
        "name": "x",
        "value": 3.0,
        "unit": "x",
        "kind": "measured",
        "spread": [3.0, 3.0],
        "n": 1,
        "goal": {"at_least": 4.0},
        "met": False,
        "peer": "p",
        "peer_value": 6.0,
        "peer_unit": "us",
        "own_value": 2.0,
        "note": "",
        "load": "load average 1.0",
    }


def test_a_figure_without_a_goal_is_neither_met_nor_missed() -> None:
    plain = figure("x", [1.0], "us")
    assert plain.document()["met"] is None
    assert summary([plain]) == "0 of 0 goals met."


def test_the_table_names_what_is_missed_and_what_was_going_on() -> None:
    from testbed.bench.family import Family

    missed = figure("slow", [1.0], "us", goal=Goal("at_least", 2.0), note="why").under("others used 0.5 of 2 cores")
    lines = table(Family("f", "Title", lambda bench: [missed], ("an assumption",)), [missed])
    text = "\n".join(lines)
    for part in ("Title", "an assumption", "goal at least 2: MISSED", "slow: why", "others used 0.5 of 2 cores"):
        assert part in text
    assert summary([missed]) == "0 of 1 goals met; missed: slow."
