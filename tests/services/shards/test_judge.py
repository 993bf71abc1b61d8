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
ROLLED_BACK = '{"files":[],"generation":1,"reason":"","to_step":0}'


@cache
def recorded() -> tuple[tuple[HistoryLine, ...], bytes]:
    """A run with a death and another attempt."""
    with TemporaryDirectory() as home:
        folder = testbed.run("shards-kill-prepared", workers=3, out=Path(home) / "run").folder
        history = read_history((folder / "history.jsonl").read_bytes(), (folder / "history.arrays").read_bytes())
        lines = tuple(replace(line, arrays={k: v.copy() for k, v in line.arrays.items()}) for line in history.lines)
        return lines, (folder / "dataset.safetensors").read_bytes()


def document_of(lines: list[HistoryLine]) -> dict[str, Any]:
    judge = ShardJudge(recorded()[1])
    for line in lines:
        judge.feed(line)
    return judge.finish()


def without(kind: str, step: int) -> list[HistoryLine]:
    """The history as if the last such line of that step had never been recorded."""
    lines = list(recorded()[0])
    found = [i for i, line in enumerate(lines) if line.kind == kind and json.loads(line.body_json)["step"] == step]
    at = found[-1]
    gone = (lines[at].source, lines[at].launch)
    later = [
        replace(line, seq=line.seq - 1, number=line.number - ((line.source, line.launch) == gone))
        for line in lines[at + 1 : -1]
    ]
    end = json.loads(lines[-1].body_json)
    end["lines"] -= 1
    end["reporters"]["/".join(map(str, gone))] -= 1
    kept = replace(lines[-1], seq=lines[-1].seq - 1, body_json=json.dumps(end, separators=(",", ":"), sort_keys=True))
    return [*lines[:at], *later, kept]


def judged(lines: list[HistoryLine]) -> dict[str, str]:
    document = document_of(lines)
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


def test_gradients_of_micro_batches_are_compared_one_by_one_and_their_sum_bitwise() -> None:
    lines = list(recorded()[0])
    index = max(i for i, line in enumerate(lines) if line.kind == "ShardPrepared")
    arrays = lines[index].arrays
    first, second = arrays["parts"].reshape(2, -1)
    last_digit = arrays["gradient"].copy()
    last_digit[3] = np.nextafter(last_digit[3], np.inf)
    for changed_arrays, verdict in (
        ({**arrays, "parts": np.concatenate([second, first])}, "violated"),  # of equal weight: the sum is the same
        ({**arrays, "gradient": last_digit}, "violated"),
        ({"gradient": arrays["gradient"]}, "unknown"),
    ):
        lines[index] = replace(lines[index], arrays=changed_arrays)
        document = document_of(lines)
        found = {one["name"]: one for one in document["invariants"]}["gradient exactness"]
        assert found["verdict"] == verdict, changed_arrays.keys()
        assert document["steps_checked"] == document["steps_committed"] - (verdict == "unknown")


def test_a_shard_missing_from_a_swap_or_a_state_that_differs_is_noticed() -> None:
    def other(body: Body) -> Body:
        first, *rest = body["swapped"]
        return {**body, "swapped": [[*first[:2], "0" * 64, first[3]], *rest]}

    assert judged(changed("ShardsSwapped", 4, other))["consistent cut"] == "violated"
    fewer = changed("ShardsSwapped", 4, lambda body: {**body, "swapped": body["swapped"][1:]})
    assert judged(fewer)["consistent cut"] == "violated"


def test_a_step_that_is_opened_before_all_stand_at_the_last_is_noticed() -> None:
    verdicts = judged(without("ShardsSwapped", 4))
    assert {name for name, verdict in verdicts.items() if verdict != "pass"} == {"", "consistent cut"}
    assert verdicts["consistent cut"] == "violated"


@pytest.mark.parametrize("step", [0, 8])
def test_an_evaluation_that_was_due_and_never_told_is_no_pass(step: int) -> None:
    assert judged(without("ShardsEvaluated", step))["gradient exactness"] == "unknown"


def test_nobody_is_accused_of_what_a_lost_line_seems_to_show() -> None:
    lines = list(recorded()[0])
    index = next(i for i, line in enumerate(lines) if line.kind == "ShardsCommitted")
    assert "violated" not in judged(lines[:index] + lines[index + 1 :]).values()


def test_a_shard_cannot_tell_what_the_coordinator_decides() -> None:
    lines = list(recorded()[0])
    at = next(i for i, line in enumerate(lines) if line.kind == "ShardsCommitted")
    number = next(line.number for line in lines[at:] if line.source == "shard-1")
    told = replace(lines[at], source="shard-1", launch=1, number=number, kind="ShardsRolledBack", body_json=ROLLED_BACK)
    later = [
        replace(line, seq=line.seq + 1, number=line.number + ((line.source, line.launch) == ("shard-1", 1)))
        for line in lines[at:]
    ]
    document = document_of([*lines[:at], told, *later])
    assert any("shard-1 told ShardsRolledBack, which is not its to tell" in reason for reason in document["reasons"])
    assert not document["steps_void"]


@pytest.mark.parametrize(
    ("change", "verdict"),
    [
        ({"condition": "stale boundary"}, "unknown"),
        ({"step": 3}, "violated"),
        ({"condition": "nobody left"}, "unknown"),
    ],
)
def test_an_end_that_was_not_promised_is_no_pass(change: Body, verdict: str) -> None:
    kind = "Expectation" if change == {"condition": "stale boundary"} else "Finished"
    lines = list(recorded()[0])
    index = next(i for i, line in enumerate(lines) if line.kind == kind)
    body = json.loads(lines[index].body_json)
    body = {**body, "promises": {**body["promises"], **change}} if kind == "Expectation" else {**body, **change}
    lines[index] = replace(lines[index], body_json=json.dumps(body, separators=(",", ":"), sort_keys=True))
    assert judged(lines)["liveness"] == verdict


def test_a_run_that_ends_soon_after_the_healing_is_unknown_not_violated() -> None:
    lines = list(recorded()[0])
    index = next(i for i, line in enumerate(lines) if line.kind == "Healed")
    body = {**json.loads(lines[index].body_json), "clean_steps": 1000}
    lines[index] = replace(lines[index], body_json=json.dumps(body, separators=(",", ":"), sort_keys=True))
    assert judged(lines)["liveness"] == "unknown"


@pytest.mark.parametrize("kind", ["BoundarySent", "ShardPrepared", "ShardsCommitted", "Durable"])
def test_a_missing_line_is_no_pass(kind: str) -> None:
    lines = list(recorded()[0])
    index = max(i for i, line in enumerate(lines) if line.kind == kind)
    assert judged(lines[:index] + lines[index + 1 :])[""] != "pass"


def test_no_history_is_unknown() -> None:
    assert judged([])[""] == "unknown"
