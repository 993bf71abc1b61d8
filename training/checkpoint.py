"""Checkpoints, in one place to import from.

`checkpoint_format` says what a checkpoint is, byte by byte; `checkpoint_store` how it gets onto a disk and back, and
what its caller must do in which order.
"""

from training.checkpoint_format import (
    CheckpointKey,
    CheckpointState,
    checkpoint_name,
    decode,
    encode,
    parse_name,
)
from training.checkpoint_store import (
    POINTER,
    Damage,
    cleanup_plan,
    newest_good,
    publish_plan,
    retention_plan,
    write_plan,
)

__all__ = [
    "POINTER",
    "CheckpointKey",
    "CheckpointState",
    "Damage",
    "checkpoint_name",
    "cleanup_plan",
    "decode",
    "encode",
    "newest_good",
    "parse_name",
    "publish_plan",
    "retention_plan",
    "write_plan",
]
