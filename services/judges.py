"""Which judge a run needs: its configuration says it."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, Protocol

from services.canonical_json import decode_object
from services.history import Damage, HistoryLine
from services.judge import Judge
from services.shards.judge import ShardJudge


class AnyJudge(Protocol):
    """What the verifier asks of a judge."""

    def feed(self, line: HistoryLine) -> None: ...

    def damaged(self, damage: Damage) -> None: ...

    def progress(self) -> dict[str, Any]: ...

    def finish(self) -> dict[str, Any]: ...


def make_judge(data_blob: bytes, config_json: str) -> AnyJudge:
    """The judge for a run of this configuration (`RunConfig` or `ShardRunConfig` as JSON; "" is data-parallel)."""
    return ShardJudge(data_blob) if _strategy(config_json) == "shards" else Judge(data_blob)


def configuration_in(lines: Iterable[HistoryLine]) -> str:
    """The configuration that a history's first `RunStarted` carries, or ""."""
    for line in lines:
        if line.kind == "RunStarted":
            body = _object(line.body_json)
            found = body.get("config_json", "")
            return found if isinstance(found, str) else ""
    return ""


def _strategy(config_json: str) -> object:
    return _object(config_json).get("strategy", "")


def _object(text: str) -> dict[str, Any]:
    try:
        return decode_object(text)
    except (ValueError, RecursionError):
        return {}
