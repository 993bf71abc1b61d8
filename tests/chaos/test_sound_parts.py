"""Mistakes of structure and of sense in one go; and nothing is said that is true only of what was left out."""

from __future__ import annotations

import copy
from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import ValidationError

from chaos.explain import explain
from chaos.library import load_scenario, scenario_names
from chaos.problem import Path, Problem
from chaos.scenario import Scenario, ScenarioError, parse_scenario
from chaos.sound_parts import sense_beside

BAD = {"no": "sense"}


def test_both_kinds_of_mistakes_in_one_go() -> None:
    text = """\
name: mine
title: Mine
training: {steps: 6, workers: 3, batch: {size: 0}}
faults:
  - kind: kill
    target: worker-2
    trigger: {step: 3, phase: ofer}
  - kind: kil
  - kind: kill
    target: worker-1
    trigger: {step: 9, phase: offer}
"""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.yaml")
    assert caught.value.complaints == (
        "mine.yaml:3: training.batch.size: 0 is out of range: at least 1",
        "mine.yaml:7: fault 1, trigger.phase: unknown phase 'ofer' for worker-2; did you mean 'offer'?",
        "mine.yaml:8: fault 2, kind: unknown fault 'kil'; did you mean 'kill'?",
        "mine.yaml:11: fault 3, trigger.step: step 9 is beyond the run, which has 6 steps",
    )


def test_the_whole_schedule_is_looked_at_where_all_of_it_is_sound() -> None:
    text = """\
name: Mine!
title: Mine
training: {workers: 2}
faults:
  - {kind: kill, target: worker-1, trigger: {step: 3, phase: offer}}
  - {kind: kill, target: worker-2, trigger: {step: 5, phase: offer}}
"""
    with pytest.raises(ScenarioError) as caught:
        parse_scenario(text, "mine.yaml")
    assert [line.partition(": ")[0] for line in caught.value.complaints] == ["mine.yaml:1", "mine.yaml:6"]
    assert "nobody would be left in step 5" in caught.value.complaints[1]


def broken(data: Any, path: Path = ()) -> Iterator[tuple[Path, Any]]:
    """The same data over and over: each time with one value senseless, or one key misspelt, or one missing."""
    keys = list(data) if isinstance(data, dict) else list(range(len(data))) if isinstance(data, list) else []
    for key in keys:
        here = (*path, key)
        senseless, misspelt, missing = copy.deepcopy(data), copy.deepcopy(data), copy.deepcopy(data)
        senseless[key] = BAD
        yield here, senseless
        if isinstance(data, dict):
            misspelt[f"{key}_"] = misspelt.pop(key)
            yield here, misspelt
            del missing[key]
            yield here, missing
        for deeper, one in broken(data[key], here):
            whole = copy.copy(data)
            whole[key] = one
            yield deeper, whole


def beside(data: dict[str, Any]) -> list[Problem]:
    """What is said beside the mistakes of structure; nothing where there are none."""
    try:
        Scenario.model_validate(data)
    except ValidationError as error:
        found = [explain(item, Scenario, data) for item in error.errors(include_url=False)]
        return sense_beside([problem.path for problem in found], data, Scenario)
    return []


@pytest.mark.parametrize("name", scenario_names())
def test_no_complaint_follows_from_a_mistake_of_structure(name: str) -> None:
    """The scenarios that come with Gradstorm make sense, so whatever is said beside is not true of them."""
    whole = load_scenario(name).model_dump(mode="json", exclude_defaults=True)
    assert beside(whole) == []
    for path, data in broken(whole):
        assert beside(data) == [], path
