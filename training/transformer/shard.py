"""Forward and backward of one shard.

A shard takes tokens (the first one) or hidden values, and gives hidden values or logits (the last one). The loss is
`head.cross_entropy` of the logits; its gradient is what goes into the last shard's backward.

    output, cache = shard_forward(spec, parameters, shard_input)
    input_gradient, parameter_gradient = shard_backward(spec, parameters, cache, output_gradient)

Duties of the caller: `shard_backward` gets the parameters that `shard_forward` got, unchanged; BLAS runs
single-threaded where bitwise equality is wanted. Overflow is no error here: whatever is non-finite comes out as
non-finite and without a warning; the caller decides what that means. Arguments are never written to.
"""

from dataclasses import dataclass

import numpy as np

from training.arrays import FLOAT64, FloatArray, IntArray
from training.errors import ContractError
from training.transformer.block import BlockCache, block_backward, block_forward
from training.transformer.embedding import embedding_backward, embedding_forward
from training.transformer.head import HeadCache, head_backward, head_forward, require_tokens
from training.transformer.layout import (
    BlockParameters,
    EmbeddingParameters,
    HeadParameters,
    block_shapes,
    element_count,
    embedding_shapes,
    head_shapes,
    views,
)
from training.transformer.sharding import ShardSpec

# glibc gives a freed block of more than 128 KiB back to the system, and every step would fault its activations in anew
# (a third of the default model's step). Once a block of this size was freed, it keeps up to twice as much.
np.empty(31 << 17)


@dataclass(frozen=True, slots=True, eq=False)
class ShardCache:
    """What `shard_backward` needs of the forward pass. `tokens` of the first shard, `head` of the last one."""

    shape: tuple[int, int]
    tokens: IntArray | None
    blocks: tuple[BlockCache, ...]
    head: HeadCache | None


@dataclass(frozen=True, slots=True, eq=False)
class _Parts:
    """A shard's flat vector, layer by layer, as views."""

    embedding: EmbeddingParameters | None
    blocks: tuple[BlockParameters, ...]
    head: HeadParameters | None


def shard_forward(
    spec: ShardSpec, parameters: FloatArray, shard_input: FloatArray | IntArray
) -> tuple[FloatArray, ShardCache]:
    """Hidden values float64 (b, t, d), from the last shard logits float64 (b, t, v), and the cache for backward.

    parameters float64 (P,). Input: the first shard takes tokens int64 (b, t), t at most the context; any other one
    takes hidden values float64 (b, t, d). Raises ContractError on another shape, dtype or token.
    """
    parts = _parts(spec, parameters, "parameters")
    contexts, length = _checked_shape(spec, shard_input)
    with np.errstate(all="ignore"):
        tokens = None
        if parts.embedding is not None:
            tokens = np.array(shard_input, dtype=np.int64, order="C")
            rows = embedding_forward(parts.embedding, tokens)
        else:
            rows = _rows(shard_input, spec.config.width)
        caches = []
        for block in parts.blocks:
            rows, cache = block_forward(block, spec.config.head_count, rows, contexts)
            caches.append(cache)
        head = None
        if parts.head is not None:
            rows, head = head_forward(parts.head, rows)
    return rows.reshape(contexts, length, -1), ShardCache((contexts, length), tokens, tuple(caches), head)


def shard_backward(
    spec: ShardSpec, parameters: FloatArray, cache: ShardCache, output_gradient: FloatArray
) -> tuple[FloatArray | None, FloatArray]:
    """Gradient in the shard's input, float64 (b, t, d), None from the first shard; and in its parameters, (P,).

    `output_gradient` float64 (b, t, d), or (b, t, v) into the last shard. Raises ContractError on another shape or
    dtype.
    """
    columns = spec.config.vocabulary_size if spec.has_head else spec.config.width
    if output_gradient.shape != (*cache.shape, columns) or output_gradient.dtype != FLOAT64:
        raise ContractError(
            f"gradient {output_gradient.dtype} {output_gradient.shape} into shard {spec.index} of {spec.shard_count}:"
            f" expected float64 {(*cache.shape, columns)}"
        )
    parts = _parts(spec, parameters, "parameters")
    parameter_gradient = np.empty(spec.parameter_count)
    to = _parts(spec, parameter_gradient, "gradient")
    with np.errstate(all="ignore"):
        rows = _rows(output_gradient, columns)
        if parts.head is not None and cache.head is not None and to.head is not None:
            rows = head_backward(parts.head, cache.head, rows, to.head)
        for block, block_cache, block_to in reversed(list(zip(parts.blocks, cache.blocks, to.blocks, strict=True))):
            rows = block_backward(block, block_cache, rows, block_to)
        if cache.tokens is not None and to.embedding is not None:
            embedding_backward(cache.tokens, rows, to.embedding)
            return None, parameter_gradient
    return rows.reshape(*cache.shape, -1), parameter_gradient


def _rows(values: FloatArray | IntArray, columns: int) -> FloatArray:
    """As float64 (N, columns), C-contiguous and aligned: another layout can give other bits."""
    return np.require(values, dtype=np.float64, requirements=("C", "A")).reshape(-1, columns)


def _checked_shape(spec: ShardSpec, shard_input: FloatArray | IntArray) -> tuple[int, int]:
    """(b, t) of the input."""
    where = f"input {shard_input.dtype} {shard_input.shape} of shard {spec.index} of {spec.shard_count}"
    config = spec.config
    expected = "int64 (b, t)" if spec.has_embedding else f"float64 (b, t, {config.width})"
    if shard_input.ndim != (2 if spec.has_embedding else 3):
        raise ContractError(f"{where}: expected {expected}")
    contexts, length = shard_input.shape[:2]
    if contexts < 1 or not 1 <= length <= config.context:
        raise ContractError(f"{where}: expected {expected} with b of at least 1 and t in 1 .. {config.context}")
    if spec.has_embedding:
        require_tokens(shard_input, config.vocabulary_size, f"tokens of shard {spec.index}")  # type: ignore[arg-type]
    elif shard_input.shape[2] != config.width or shard_input.dtype != FLOAT64:
        raise ContractError(f"{where}: expected {expected}")
    return contexts, length


def _parts(spec: ShardSpec, flat: FloatArray, what: str) -> _Parts:
    """Views of the layers in `flat`. Raises ContractError unless it is float64 (P,) and contiguous."""
    if flat.shape != (spec.parameter_count,) or flat.dtype != FLOAT64 or not flat.flags.c_contiguous:
        raise ContractError(
            f"{what} {flat.dtype} {flat.shape} of shard {spec.index} of {spec.shard_count}:"
            f" expected contiguous float64 ({spec.parameter_count},)"
        )
    config, start = spec.config, 0
    embedding, head = None, None
    if spec.has_embedding:
        embedding = EmbeddingParameters(*views(flat, start, embedding_shapes(config)))
        start += element_count(embedding_shapes(config))
    shapes = block_shapes(config)
    step = element_count(shapes)
    blocks = tuple(BlockParameters(*views(flat, start + i * step, shapes)) for i in range(spec.block_count))
    if spec.has_head:
        head = HeadParameters(*views(flat, start + spec.block_count * step, head_shapes(config)))
    return _Parts(embedding, blocks, head)
