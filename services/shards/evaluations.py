"""Is an evaluation loss what the committed state gives? The verifier's own model, on parameters that it replayed."""

from __future__ import annotations

import math
from typing import Any

import numpy as np

from services.messages import Array
from services.records import ShardsEvaluated
from services.shards.bookkeeping import Tokens
from services.shards.ledger import ShardLedger
from services.shards.model import TOLERANCE_FLOORS, Ids, ShardModel, Sizes


class Evaluations:
    """Told losses wait until the state of their step is known. `findings`: (step, what, history line)."""

    def __init__(self, ledger: ShardLedger) -> None:
        self._ledger = ledger
        self._waiting: dict[int, tuple[float, int]] = {}

    def told(self, fact: ShardsEvaluated, seq: int) -> None:
        """An evaluation was recorded."""
        self._waiting[fact.step] = (fact.loss, seq)

    @property
    def open_steps(self) -> list[int]:
        """Steps whose evaluation could not be checked so far."""
        return sorted(self._waiting)

    def check(self, tokens: Tokens) -> list[tuple[int, str, int]]:
        """(step, what is wrong or "", history line) of each evaluation that can be checked by now."""
        found = []
        for step in self.open_steps:
            held = self._ledger.held.get(step, {})
            if len(held) == self._ledger.shards:
                loss, seq = self._waiting.pop(step)
                parts = [held[shard].parameters for shard in sorted(held)]
                with np.errstate(all="ignore"):  # what is not finite is told, and compared as such
                    found.append((step, self._compare(parts, tokens, loss), seq))
        return found

    def _compare(self, parts: list[Array], tokens: Tokens, told: float) -> str:
        config = self._ledger.config
        inputs, targets = _contexts(tokens.evaluation, config["evaluation_contexts"], config["model"]["context"])
        models = _models(config)
        given: Any = inputs
        for model, part in zip(models[:-1], parts[:-1], strict=True):
            given = model.forward(part, given)
        loss, _, _ = models[-1].loss_back(parts[-1], given, targets)
        tolerance = TOLERANCE_FLOORS * sum(model.floor_factor for model in models) * max(abs(loss), 1.0)
        if not math.isfinite(loss) and not math.isfinite(told):
            return ""
        if abs(loss - told) <= tolerance:
            return ""
        return f"an evaluation loss of {told!r} was told, the committed state gives {loss!r}, tolerance {tolerance:.3g}"


def _models(config: dict[str, Any]) -> list[ShardModel]:
    edges = [0, *config["cuts"], config["model"]["block_count"]]
    sizes, count = Sizes.of(config["model"]), len(config["cuts"]) + 1
    return [ShardModel(sizes, edges[index], edges[index + 1], index, count) for index in range(count)]


def _contexts(tokens: Ids, count: int, context: int) -> tuple[Ids, Ids]:
    """Context i begins at i * (n - context) // count."""
    places = len(tokens) - context
    starts = np.array([index * places // count for index in range(count)], dtype=np.int64)
    at = starts[:, None] + np.arange(context)
    return tokens[at], tokens[at + 1]
