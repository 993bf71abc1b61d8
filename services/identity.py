"""Which training a listening host takes part in: what is compared when the driver of a run attaches it. Pure.

A host may be started for a role, a cut, a model and a run (`gradstorm plan` writes all of them on its command line).
What it was told must be what it is attached for; what it was not told is not compared. `why_not_attached` is the whole
decision, with its reason.
"""

from __future__ import annotations

import hashlib
import json
from dataclasses import asdict, dataclass

from services.any_config import AnyRunConfig
from services.events import shard_id
from services.shard_config import ShardRunConfig


@dataclass(frozen=True, slots=True)
class Claim:
    """What a host was started for; "" where it takes what comes. `role` may be a kind alone, as "shard"."""

    role: str
    cut: str = ""
    model_sha256: str = ""
    run_id: str = ""
    version: str = ""


@dataclass(frozen=True, slots=True)
class Offer:
    """What a driver attaches a host for. `generation` is the newest that the driver knows of."""

    role: str
    cut: str
    model_sha256: str
    run_id: str
    version: str
    generation: int = 0


def model_sha256(config: AnyRunConfig) -> str:
    """Of what is trained: model, optimizer, seed and data. Two runs with the same one start from the same bits."""
    parts = {
        "kind": config.strategy == "shards",
        "model": asdict(config.model),
        "optimizer": asdict(config.optimizer),
        "seed": config.seed,
        "dataset_sha256": config.dataset_sha256,
    }
    return hashlib.sha256(json.dumps(parts, sort_keys=True, separators=(",", ":")).encode()).hexdigest()


def cut_of(config: AnyRunConfig, role: str) -> str:
    """The blocks that a shard has, as "2:4/6": from block 2 up to block 4 of 6. Empty for every other role."""
    if not isinstance(config, ShardRunConfig) or not role.startswith("shard-"):
        return ""
    spec = config.specs[shard_id(role) - 1]
    return f"{spec.first_block}:{spec.stop_block}/{config.model.block_count}"


def why_not_attached(claim: Claim, offer: Offer, generation: int = 0) -> str:
    """Why this host is not what the driver wants it to be; empty when it is. `generation`: the newest seen here."""
    kind = offer.role.partition("-")[0]
    if claim.run_id not in ("", offer.run_id):
        return f"another run: this host waits for {claim.run_id}, not {offer.run_id}"
    if claim.version != offer.version:
        return f"another version: this host has Gradstorm {claim.version}, the driver {offer.version}"
    if claim.role not in (offer.role, kind):
        return f"another role: this host is {claim.role}, not {offer.role}"
    if claim.model_sha256 not in ("", offer.model_sha256):
        return f"another model: this host is for {claim.model_sha256[:12]}, the run trains {offer.model_sha256[:12]}"
    if claim.cut not in ("", offer.cut):
        return f"another cut: this host has blocks {claim.cut}, {offer.role} of this run has {offer.cut or 'none'}"
    if offer.generation < generation:
        return f"an old driver: it knows generation {offer.generation}, this host has seen {generation}"
    return ""
