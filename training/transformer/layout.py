"""Where each parameter stands in the flat float64 vector.

Layers in order: embedding, block 0, block 1, ..., head. Within a layer, matrices row-major:

    embedding   token (v, d), position (context, d)
    block       norm1 gain (d), norm1 bias (d), query-key-value weights (d, 3d), bias (3d),
                output weights (d, d), bias (d), norm2 gain (d), norm2 bias (d),
                up weights (d, m), bias (m), down weights (m, d), bias (d)
    head        norm gain (d), norm bias (d), weights (d, v)

Columns of the query-key-value weights: all queries, all keys, all values; within each, head after head. A shard holds
contiguous layers, so its vector is a slice of the central one.
"""

import math
from typing import NamedTuple

from training.arrays import FloatArray
from training.transformer.config import TransformerConfig

Shape = tuple[int, ...]


class EmbeddingParameters(NamedTuple):
    """Views of an embedding's parameters, or of the places where their gradients go."""

    token: FloatArray
    position: FloatArray


class BlockParameters(NamedTuple):
    """Views of a block's parameters, or of the places where their gradients go."""

    norm1_gain: FloatArray
    norm1_bias: FloatArray
    qkv_weights: FloatArray
    qkv_bias: FloatArray
    output_weights: FloatArray
    output_bias: FloatArray
    norm2_gain: FloatArray
    norm2_bias: FloatArray
    up_weights: FloatArray
    up_bias: FloatArray
    down_weights: FloatArray
    down_bias: FloatArray


class HeadParameters(NamedTuple):
    """Views of the head's parameters, or of the places where their gradients go."""

    norm_gain: FloatArray
    norm_bias: FloatArray
    weights: FloatArray


def embedding_shapes(config: TransformerConfig) -> tuple[Shape, ...]:
    """Shapes in the order of `EmbeddingParameters`."""
    return ((config.vocabulary_size, config.width), (config.context, config.width))


def block_shapes(config: TransformerConfig) -> tuple[Shape, ...]:
    """Shapes in the order of `BlockParameters`; every block has the same."""
    d, m = config.width, config.mlp_width
    return ((d,), (d,), (d, 3 * d), (3 * d,), (d, d), (d,), (d,), (d,), (d, m), (m,), (m, d), (d,))


def head_shapes(config: TransformerConfig) -> tuple[Shape, ...]:
    """Shapes in the order of `HeadParameters`."""
    return ((config.width,), (config.width,), (config.width, config.vocabulary_size))


def element_count(shapes: tuple[Shape, ...]) -> int:
    """How many elements arrays of these shapes have together."""
    return sum(math.prod(shape) for shape in shapes)


def views(flat: FloatArray, start: int, shapes: tuple[Shape, ...]) -> list[FloatArray]:
    """Consecutive views of these shapes into `flat`, the first one at element `start`."""
    found = []
    for shape in shapes:
        stop = start + math.prod(shape)
        found.append(flat[start:stop].reshape(shape))
        start = stop
    return found
