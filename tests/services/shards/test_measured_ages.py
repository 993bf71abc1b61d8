"""Measured ages cannot be drawn again: the judge holds them to the bound, and the weight to the age that was told."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

import testbed
from services.history import HistoryLine, read_history
from services.shards.judge import ShardJudge

Body = dict[str, Any]


@cache
def recorded() -> tuple[tuple[HistoryLine, ...], bytes]:
    """A run in which a link was late for some steps."""
    with TemporaryDirectory() as home:
        folder = testbed.run("shards-measured", out=Path(home) / "run").folder
        history = read_history((folder / "history.jsonl").read_bytes(), (folder / "history.arrays").read_bytes())
        lines = tuple(replace(line, arrays={k: v.copy() for k, v in line.arrays.items()}) for line in history.lines)
        return lines, (folder / "dataset.safetensors").read_bytes()


def judged(kind: str, change: Callable[[Body], Body]) -> dict[str, Any]:
    """The verdict with the last line of that kind changed."""
    lines = list(recorded()[0])
    at = max(index for index, line in enumerate(lines) if line.kind == kind)
    body = change(json.loads(lines[at].body_json))
    lines[at] = replace(lines[at], body_json=json.dumps(body, separators=(",", ":"), sort_keys=True))
    judge = ShardJudge(recorded()[1])
    for line in lines:
        judge.feed(line)
    return judge.finish()


def violated(document: dict[str, Any]) -> set[str]:
    return {one["name"] for one in document["invariants"] if one["verdict"] == "violated"}


def test_the_honest_history_passes_and_says_that_ages_were_measured() -> None:
    document = judged("BoundaryUsed", lambda body: body)
    assert (document["verdict"], document["reasons"]) == ("pass", [])
    assert document["boundaries"]["ages_are"] == "measured"
    assert document["boundaries"]["max_age_ticks"] == 2


@pytest.mark.parametrize(
    ("kind", "change", "invariants"),
    [
        ("BoundaryUsed", {"age": -1}, {"boundary versions"}),
        ("BoundaryUsed", {"age": 201, "weight": 0.5}, {"boundary versions", "gradient exactness"}),
        ("BoundaryUsed", {"age": 1, "weight": 0.9048374180359595}, {"boundary versions"}),
        ("BoundaryUsed", {"transit_ms": 10.0}, {"boundary versions"}),
        ("BoundaryUsed", {"transit_ms": "NaN"}, {"boundary versions"}),
        ("BoundaryUsed", {"weight": 0.75}, {"boundary fidelity"}),
        ("BoundarySent", {"age": 1}, {"boundary fidelity"}),
    ],
)
def test_what_does_not_fit_the_age_that_was_told_is_noticed(kind: str, change: Body, invariants: set[str]) -> None:
    assert invariants <= violated(judged(kind, lambda body: {**body, **change}))
