"""What the boundaries of a layer-sharded run came to: bytes, ages, density and what compression cost, from its history.

Counted are the boundaries that committed steps used. Density and errors come from the dense values that were recorded,
coded and decoded again (the verifier shows that this is what was sent).
"""

from __future__ import annotations

import json
import math
from collections import Counter
from typing import Any

import numpy as np

from services.messages import Array
from services.records import BoundaryUsed, ShardsCommitted, ShardsRolledBack
from services.shard_config import ShardRunConfig
from testbed.history_facts import read_facts
from testbed.run_folder import RunFolder
from training.boundary_codec.codec import decode, encode
from training.boundary_codec.quality import BoundaryStats, stats

ARRAYS = "history.arrays"
MEASURED_MAX = 400  # boundaries whose density and errors are measured, evenly over the run


def boundary_part(config: ShardRunConfig, folder: RunFolder) -> dict[str, Any]:
    """`payload_bytes` is the length of one boundary's payload field (the largest, where micro-batches differ)."""
    decided = {(fact.generation, fact.step, fact.attempt) for fact in decisions(folder).values()}
    sizes, ages = [], Counter[int]()
    for told in read_facts(folder.history_path, (BoundaryUsed,)):
        fact = told.fact
        if isinstance(fact, BoundaryUsed) and (fact.generation, fact.step, fact.attempt) in decided:
            if fact.direction == "forward":  # what is compressed
                sizes.append(fact.payload_bytes)
            ages[fact.age] += 1
    return {
        "boundaries": len(sizes),
        "payload_bytes": max(sizes, default=0),
        "payload_bytes_total": sum(sizes),
        "ages": {str(age): count for age, count in sorted(ages.items())},
        "ages_are": config.staleness.age,
        **_quality(config, folder, max(sizes, default=0)),
    }


def decisions(folder: RunFolder) -> dict[int, ShardsCommitted]:
    """Decisions that stand, by step."""
    decided: dict[int, ShardsCommitted] = {}
    for told in read_facts(folder.history_path, (ShardsCommitted, ShardsRolledBack)):
        if isinstance(told.fact, ShardsCommitted):
            decided[told.fact.step] = told.fact
        elif isinstance(told.fact, ShardsRolledBack):
            to_step = told.fact.to_step
            decided = {step: fact for step, fact in decided.items() if step <= to_step}
    return decided


def _quality(config: ShardRunConfig, folder: RunFolder, largest: int) -> dict[str, Any]:
    contexts = -(-config.batch // config.micro_batches)
    dense_bytes = 8 * contexts * config.model.context * config.model.width
    found = [_stats(config, values) for values in _dense(folder)]
    if not found:
        return {"dense_bytes": dense_bytes, "density": None, "ratio": None, "rms_error": None, "max_error": None}
    return {
        "dense_bytes": dense_bytes,
        "density": math.fsum(one.density for one in found) / len(found),
        "ratio": dense_bytes / largest if largest else None,
        "rms_error": math.sqrt(math.fsum(one.rms_error**2 for one in found) / len(found)),
        "max_error": max(one.max_error for one in found),
    }


def _stats(config: ShardRunConfig, values: Array) -> BoundaryStats:
    if config.compression is None:
        return stats(values, values, bytes(values.nbytes))
    payload = encode(values, config.compression.keep_percent, config.compression.bits)
    return stats(values, decode(payload, values.size), payload)


def _dense(folder: RunFolder) -> list[Array]:
    """Dense values that the history holds, a sample of them; each is read alone, since there may be gigabytes."""
    places = []
    if folder.history_path.exists() and (folder.path / ARRAYS).exists():
        with folder.history_path.open("rb") as lines:
            places = [place for line in lines if _is_forward(line) and (place := _place(line))]
    every = max(1, len(places) // MEASURED_MAX)
    found = []
    if places:
        with (folder.path / ARRAYS).open("rb") as arrays:
            for offset, count in places[::every]:
                arrays.seek(offset)
                found.append(np.frombuffer(arrays.read(8 * count), "<f8"))
    return found


def _place(line: bytes) -> tuple[int, int] | None:
    try:
        offset, count, _ = json.loads(line)["arrays"]["dense"]
    except (ValueError, KeyError, TypeError):
        return None
    return int(offset), int(count)


def _is_forward(line: bytes) -> bool:
    return b'"kind":"BoundarySent"' in line and b'"direction":"forward"' in line
