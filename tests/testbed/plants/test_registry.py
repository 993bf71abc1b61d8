"""Bugs are put in and taken out again without a trace; a name that is not known is answered with the nearest."""

from __future__ import annotations

from pathlib import Path

import pytest

from services.roles.worker import Worker
from testbed.plants import PLANTS, planted
from testbed.plants.registry import UNKNOWN, memory
from training.errors import ConfigurationError


def attributes(names: list[str]) -> dict[tuple[str, str], object]:
    """What stands at every place that these bugs patch; `None` where it is inherited."""
    places = [(owner, attribute) for name in names for owner, attribute, _ in PLANTS[name].patches()]
    return {(repr(owner), attribute): vars(owner).get(attribute) for owner, attribute in places}


def test_nothing_of_any_bug_is_left() -> None:
    names = list(PLANTS)
    before = attributes(names)
    for name in names:
        with planted([name]):
            assert attributes([name]) != {place: before[place] for place in attributes([name])}
        assert attributes(names) == before


def test_a_method_that_is_inherited_is_inherited_again() -> None:
    assert "_serve" not in vars(Worker)
    with planted(["joiner-a-step-behind"]):
        assert "_serve" in vars(Worker)
    assert "_serve" not in vars(Worker)


def test_an_error_takes_the_bug_out_too() -> None:
    before = attributes(["one-ulp"])
    with pytest.raises(ZeroDivisionError), planted(["one-ulp"]):
        raise ZeroDivisionError
    assert attributes(["one-ulp"]) == before


def test_the_nearest_name() -> None:
    with pytest.raises(ConfigurationError, match="did you mean 'mean-of-means'"), planted(["mean-of-mean"]):
        pass


def test_what_a_bug_remembers_goes_with_its_role() -> None:
    first, second = Worker(1, 1), Worker(2, 1)
    memory(first)["seen"] = 3
    assert memory(first) == {"seen": 3}
    assert memory(second) == {}


def test_the_page_names_every_bug_what_it_does_and_who_must_catch_it() -> None:
    """PLANTED_BUGS.md says how to make its table anew."""
    text = (Path(__file__).parents[3] / "PLANTED_BUGS.md").read_text(encoding="utf-8")
    rows = [line.strip("| ").split(" | ") for line in text.splitlines() if line.startswith("| `")]
    told = {cells[0].strip("`"): (cells[1], cells[2]) for cells in rows}
    assert told == {name: (bug.what, bug.invariant or UNKNOWN) for name, bug in PLANTS.items()}
    assert all(cells[4].startswith(("caught", "unknown as it should")) for cells in rows)
