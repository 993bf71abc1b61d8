"""How the tests of invariants say what must be caught, by whom, and where."""

from __future__ import annotations

from typing import Any

from tests.services.honest_run import HonestRun, not_passed


def find(document: dict[str, Any], name: str) -> dict[str, Any]:
    """The part of one invariant."""
    part: dict[str, Any] = next(entry for entry in document["invariants"] if entry["name"] == name)
    return part


def assert_caught(
    run: HonestRun, name: str, step: int | None = None, role: str = "", words: str = "", **how: Any
) -> None:
    """Exactly this invariant is violated, first at that step and by that role, whatever the order of the sources."""
    for seed in (None, 5):
        document = run.judge(seed, **how)
        assert not_passed(document) == {name: "violated"}, document["invariants"]
        assert document["verdict"] == "violated"
        first = find(document, name)["first_violation"]
        assert step is None or first["step"] == step, first
        assert role in ("", first["role"]), first
        assert words in first["what"], first


def assert_unknown(run: HonestRun, words: str, name: str = "", **how: Any) -> None:
    """Nothing is violated, the verdict is unknown, and the reason says why."""
    document = run.judge(**how)
    assert document["verdict"] == "unknown", document
    reasons = document["reasons"] + [reason for entry in document["invariants"] for reason in entry["reasons"]]
    assert any(words in reason for reason in reasons), reasons
    if name:
        assert not_passed(document) == {name: "unknown"}
