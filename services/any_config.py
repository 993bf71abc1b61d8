"""The configuration of a run, of either kind of training, and who takes part in it from the beginning."""

from __future__ import annotations

import json
from typing import Literal

from services.config import RunConfig
from services.events import COORDINATOR, SERVER, VERIFIER, shard_name, worker_name
from services.shard_config import ShardRunConfig
from training.errors import GradstormError

UNREADABLE = (TypeError, KeyError, ValueError, AttributeError, RecursionError, GradstormError)
"""What reading a document that somebody else wrote may raise."""

SHARDS = "shards"
AnyStrategy = Literal["ring", "ps", "shards"]
AnyRunConfig = RunConfig | ShardRunConfig


def read_run_config(text: str) -> AnyRunConfig:
    """Inverse of `to_json` of either. Raises TypeError, KeyError or ValueError for what is neither."""
    raw = json.loads(text)
    if not isinstance(raw, dict):
        raise TypeError("a run configuration is an object")
    return ShardRunConfig.from_json(text) if raw.get("strategy") == SHARDS else RunConfig.from_json(text)


def member_name(strategy: str, number: int) -> str:
    """Name of the role of member `number`: a shard's or a worker's."""
    return shard_name(number) if strategy == SHARDS else worker_name(number)


def first_cast(strategy: str, members: int) -> tuple[str, ...]:
    """The roles that a run starts with, in the order in which they are started."""
    server = (SERVER,) if strategy == "ps" else ()
    return (VERIFIER, COORDINATOR, *server, *(member_name(strategy, number) for number in range(1, members + 1)))
