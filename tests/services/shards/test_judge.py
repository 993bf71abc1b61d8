"""The judge of layer-sharded runs on a real history: honest it passes, and each falsified line is noticed."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import pytest

import testbed
from services.history import HistoryLine, read_history
from services.shards.judge import ShardJudge

Body = dict[str, Any]
Change = Callable[[Body], Body]


@cache
def recorded() -> tuple[tuple[HistoryLine, ...], bytes]:
    """A run with a death and another attempt."""
    with TemporaryDirectory() as home:
        folder = testbed.run("shards-kill-prepared", workers=3, out=Path(home) / "run").folder
        history = read_history((folder / "history.jsonl").read_bytes(), (folder / "history.arrays").read_bytes())
        lines = tuple(replace(line, arrays={k: v.copy() for k, v in line.arrays.items()}) for line in history.lines)
        return lines, (folder / "dataset.safetensors").read_bytes()


def judged(lines: list[HistoryLine]) -> dict[str, str]:
    judge = ShardJudge(recorded()[1])
    for line in lines:
        judge.feed(line)
    document = judge.finish()
    return {"": document["verdict"], **{one["name"]: one["verdict"] for one in document["invariants"]}}


def changed(kind: str, step: int, change: Change, where: Change = lambda body: body) -> list[HistoryLine]:
    """The history with the last such line of that step changed."""
    lines = list(recorded()[0])
    found = [
        index for index, line in enumerate(lines)
        if line.kind == kind and (body := json.loads(line.body_json))["step"] == step and where(body)
    ]  # fmt: skip
    index = found[-1]
    body = change(json.loads(lines[index].body_json))
    lines[index] = replace(lines[index], body_json=json.dumps(body, separators=(",", ":"), sort_keys=True))
    return lines


def test_the_honest_history_passes_and_is_judged_whole() -> None:
    assert set(judged(list(recorded()[0])).values()) == {"pass"}


@pytest.mark.parametrize(
    ("kind", "field", "value", "invariant"),
    [
        ("BoundaryUsed", "age", 1, "boundary versions"),
        ("BoundaryUsed", "weight", 0.5, "boundary fidelity"),
        ("BoundaryUsed", "payload_bytes", 1, "boundary fidelity"),
        ("BoundaryUsed", "payload_sha256", "0" * 64, "boundary fidelity"),
        ("BoundaryUsed", "micro_batch", 0, "boundary versions"),
        ("BoundarySent", "payload_sha256", "0" * 64, "boundary fidelity"),
        ("ShardPrepared", "parameters_digest", "0" * 64, "gradient exactness"),
        ("ShardPrepared", "file", "elsewhere.shard", "durability"),
        ("ShardSwapped", "step", 7, "step monotonicity"),
        ("ShardsCommitted", "generation", 1, "fencing"),
        ("ShardsCommitted", "step", 6, "step monotonicity"),
        ("ShardsEvaluated", "loss", 1.0, "gradient exactness"),
    ],
)
def test_a_falsified_field_is_noticed(kind: str, field: str, value: Any, invariant: str) -> None:
    def last(body: Body) -> Body:
        return body if body.get(field) != value else {}

    verdicts = judged(changed(kind, 4, lambda body: {**body, field: value}, last))
    assert (verdicts[""], verdicts[invariant]) == ("violated", "violated"), verdicts


def test_a_gradient_that_is_off_is_noticed() -> None:
    lines = list(recorded()[0])
    index = max(i for i, line in enumerate(lines) if line.kind == "ShardPrepared")
    gradient = np.array(lines[index].arrays["gradient"])
    gradient[3] += 1e-9
    lines[index] = replace(lines[index], arrays={"gradient": gradient})
    assert judged(lines)["gradient exactness"] == "violated"


def test_a_shard_missing_from_a_swap_or_a_state_that_differs_is_noticed() -> None:
    def other(body: Body) -> Body:
        first, *rest = body["swapped"]
        return {**body, "swapped": [[*first[:2], "0" * 64, first[3]], *rest]}

    assert judged(changed("ShardsSwapped", 4, other))["consistent cut"] == "violated"


@pytest.mark.parametrize("kind", ["BoundarySent", "ShardPrepared", "ShardsCommitted", "Durable"])
def test_a_missing_line_is_no_pass(kind: str) -> None:
    lines = list(recorded()[0])
    index = max(i for i, line in enumerate(lines) if line.kind == kind)
    assert judged(lines[:index] + lines[index + 1 :])[""] != "pass"


def test_no_history_is_unknown() -> None:
    assert judged([])[""] == "unknown"
