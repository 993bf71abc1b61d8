"""The sampler's state as the JSON that messages, facts and checkpoints carry."""

from __future__ import annotations

import json

from training.sampler import Sampler, SamplerState


def sampler_to_json(sampler: Sampler) -> str:
    """Canonical: sorted keys, no spaces."""
    return json.dumps(sampler.state().to_json(), sort_keys=True, separators=(",", ":"))


def sampler_from_json(text: str) -> Sampler:
    """Raises DataError on anything that is no sampler state."""
    return Sampler.restore(SamplerState.from_json(json.loads(text)))
