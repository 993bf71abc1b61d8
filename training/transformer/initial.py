"""Where training starts: seeded parameters that do not depend on the cut.

Every layer draws from a generator of its own, PCG64 over [seed, layer], where layer 1 is the embedding, 2 .. n + 1
the blocks and n + 2 the head. So a shard makes its own part without the rest of the model.
"""

import math

import numpy as np

from training.arrays import FloatArray
from training.errors import ConfigurationError
from training.transformer.config import TransformerConfig
from training.transformer.layout import Shape, block_shapes, embedding_shapes, head_shapes
from training.transformer.sharding import ShardSpec

_EMBEDDING_SCALE = 0.5


def initial_parameters(spec: ShardSpec, seed: int) -> FloatArray:
    """A shard's starting point, float64 (P,).

    Embeddings N(0, 0.5^2): of 0.02, 0.1, 0.5 and 1.0 the one under which the default model learns the sample text as
    well as any, while the decay of boundaries costs what it cost the prototype. Matrices N(0, 1/(3 fan_in)), the
    variance of PyTorch's uniform rule for linear layers; gains 1, biases 0.

    Raises ConfigurationError for a negative seed.
    """
    if seed < 0:
        raise ConfigurationError(f"the parameters' seed is {seed}; it must be at least 0")
    config = spec.config
    parts = []
    if spec.has_embedding:
        parts.append(_embedding(config, np.random.default_rng([seed, 1])))
    for block in range(spec.first_block, spec.stop_block):
        parts.append(_block(config, np.random.default_rng([seed, 2 + block])))
    if spec.has_head:
        parts.append(_head(config, np.random.default_rng([seed, 2 + config.block_count])))
    return np.concatenate(parts)


def _embedding(config: TransformerConfig, generator: np.random.Generator) -> FloatArray:
    return np.concatenate([_normal(generator, shape, _EMBEDDING_SCALE) for shape in embedding_shapes(config)])


def _block(config: TransformerConfig, generator: np.random.Generator) -> FloatArray:
    parts = []
    for index, shape in enumerate(block_shapes(config)):
        if len(shape) == 2:
            scale = 1.0 / math.sqrt(3 * shape[0])
            parts.append(_normal(generator, shape, scale))
        else:
            parts.append(np.full(shape, 1.0 if index in (0, 6) else 0.0))
    return np.concatenate(parts)


def _head(config: TransformerConfig, generator: np.random.Generator) -> FloatArray:
    gain, bias, weights = head_shapes(config)
    return np.concatenate([np.ones(gain), np.zeros(bias), _normal(generator, weights, 1.0 / math.sqrt(3 * weights[0]))])


def _normal(generator: np.random.Generator, shape: Shape, scale: float) -> FloatArray:
    """Flat normal numbers of this standard deviation."""
    numbers: FloatArray = generator.standard_normal(math.prod(shape))
    numbers *= scale
    return numbers
