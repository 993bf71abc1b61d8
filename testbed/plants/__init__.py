"""Planted bugs: production code altered while a whole run is made, to show that the verifier catches it.

Each bug is a function that lists patches: (owner, attribute, replacement). `planted` puts them in and takes them out
again; in an engine with processes every role's process is planted alike. Only those in `history` edit a history.
"""

from testbed.plants import (  # noqa: F401 - each registers its bugs
    checkpoints,
    durability,
    evidence,
    history,
    lies,
    liveness,
    members,
    samples,
    shard_members,
    shard_states,
    shards,
    state,
    steps,
    sums,
)
from testbed.plants.registry import PLANTS, Patch, Plant, find_plant, planted

__all__ = ["PLANTS", "Patch", "Plant", "find_plant", "planted"]
