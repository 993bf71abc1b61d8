"""A fingerprint of this machine's arithmetic on a transformer's own shapes.

Duty of the caller: as for `training.numerics`: BLAS threads are set before numpy loads; compare for equality only.
"""

import hashlib
from dataclasses import replace

import numpy as np

from training.digest import array_digest
from training.errors import ConfigurationError
from training.numerics import fingerprint
from training.transformer.config import TransformerConfig
from training.transformer.initial import initial_parameters
from training.transformer.sharding import cut
from training.transformer.step import central_gradient


def transformer_fingerprint(config: TransformerConfig, contexts: int) -> str:
    """SHA-256, hex, over `fingerprint` and one gradient of this model with a single block, `contexts` >= 1 contexts.

    Kernels depend on shapes, so give the contexts of a micro-batch; where these differ, the larger one. All blocks have
    the same shapes, hence one is enough. Raises ConfigurationError for no context.
    """
    if contexts < 1:
        raise ConfigurationError(f"a fingerprint over {contexts} contexts; it needs at least 1")
    (spec,) = cut(replace(config, block_count=1))
    tokens = np.arange(contexts * (config.context + 1), dtype=np.int64).reshape(contexts, -1) ** 2
    tokens %= config.vocabulary_size
    loss, gradient = central_gradient(spec, initial_parameters(spec, 0), tokens[:, :-1], tokens[:, 1:], 1)
    text = f"{fingerprint()} {array_digest(np.array([loss]))} {array_digest(gradient)}"
    return hashlib.sha256(text.encode()).hexdigest()
