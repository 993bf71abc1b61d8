"""What the coordinator knows of the attempt (or evaluation) under way."""

from __future__ import annotations

from dataclasses import dataclass, field

from services.messages import Prepared, Swapped
from services.records import ShardsCommitted, ShardsOpened


@dataclass(slots=True)
class ShardAttempt:
    """What is known of the attempt (or evaluation) under way."""

    opened: ShardsOpened
    evaluate: bool = False
    prepared: dict[int, Prepared] = field(default_factory=dict)
    committed: ShardsCommitted | None = None
    swapped: dict[int, Swapped] = field(default_factory=dict)
