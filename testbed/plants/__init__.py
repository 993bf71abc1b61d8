"""Planted bugs: production code altered while a whole run is made, to show that the verifier catches it.

Each bug is a function that lists patches: (owner, attribute, replacement). `planted` puts them in and takes them out
again; in an engine with processes every role's process is planted alike. Nothing here edits a history.
"""

from testbed.plants import durability, members, samples, state, sums  # noqa: F401 - each registers its bugs
from testbed.plants.registry import PLANTS, Patch, Plant, planted

__all__ = ["PLANTS", "Patch", "Plant", "planted"]
