"""Cutting a transformer into shards of contiguous layers, and moving parameters between a cut and the central model.

A cut of n blocks is given by the block in front of which each cut stands: `(2, 4)` cuts 6 blocks into [0, 2), [2, 4)
and [4, 6). The first shard has the embedding, the last one the final norm and the head. They alone may have no block
(a cut at 0, or at n: the embedding, or the head, on a host of its own); between them a shard without a block would
only pass values on, so cuts are strictly ascending. Hence n blocks give at most n + 2 shards, and never more than 8.
"""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from training.arrays import FLOAT64, FloatArray
from training.errors import ConfigurationError, ContractError
from training.transformer.config import TransformerConfig
from training.transformer.layout import block_shapes, element_count, embedding_shapes, head_shapes

MAX_SHARDS = 8


@dataclass(frozen=True, slots=True)
class ShardSpec:
    """Blocks [first_block, stop_block) of a model, as shard `index` of `shard_count`. Made by `cut`."""

    config: TransformerConfig
    index: int
    shard_count: int
    first_block: int
    stop_block: int

    @property
    def block_count(self) -> int:
        """How many blocks this shard has; 0 only for the first and the last one."""
        return self.stop_block - self.first_block

    @property
    def has_embedding(self) -> bool:
        """Whether it takes tokens; otherwise it takes hidden values."""
        return self.index == 0

    @property
    def has_head(self) -> bool:
        """Whether it gives logits; otherwise it gives hidden values."""
        return self.index == self.shard_count - 1

    @property
    def parameter_count(self) -> int:
        """Length of the shard's flat parameter vector."""
        count = self.block_count * element_count(block_shapes(self.config))
        if self.has_embedding:
            count += element_count(embedding_shapes(self.config))
        if self.has_head:
            count += element_count(head_shapes(self.config))
        return count


def cut(config: TransformerConfig, cuts: Sequence[int] = ()) -> tuple[ShardSpec, ...]:
    """The shards, first to last; no cut gives the central model. Raises ConfigurationError for an impossible cut."""
    bounds = (0, *cuts, config.block_count)
    where = f"cuts {list(cuts)} of {config.block_count} blocks"
    if any(not isinstance(at, int) or isinstance(at, bool) for at in cuts):
        raise ConfigurationError(f"{where}: each must be a whole number, the block in front of which it stands")
    if any(not 0 <= at <= config.block_count for at in cuts):
        raise ConfigurationError(
            f"{where}: a cut lies outside of the blocks; each must be in 0 .. {config.block_count}"
        )
    if any(before >= after for before, after in itertools.pairwise(cuts)):
        raise ConfigurationError(
            f"{where}: cuts must be strictly ascending; a shard in the middle that has no block would do nothing"
        )
    if len(cuts) >= MAX_SHARDS:
        raise ConfigurationError(f"{where} make {len(cuts) + 1} shards; at most {MAX_SHARDS} are possible")
    pairs = enumerate(itertools.pairwise(bounds))
    return tuple(ShardSpec(config, index, len(cuts) + 1, first, stop) for index, (first, stop) in pairs)


def even_cuts(block_count: int, shard_count: int) -> tuple[int, ...]:
    """Cuts for shards of nearly equal size, earlier ones having one block more where it does not come out even.

    With one shard more than blocks the head stands alone, with two more the embedding too. Raises ConfigurationError
    when the blocks are too few, or for less than 1 or more than 8 shards.
    """
    if not 1 <= shard_count <= min(MAX_SHARDS, block_count + 2):
        raise ConfigurationError(
            f"cannot cut {block_count} blocks into {shard_count} shards; choose 1 .. {min(MAX_SHARDS, block_count + 2)}"
        )
    if shard_count == block_count + 2:
        return tuple(range(block_count + 1))
    share, rest = divmod(block_count, shard_count)
    sizes = (share + (index < rest) for index in range(shard_count - 1))
    return tuple(itertools.accumulate(sizes))


def split_parameters(specs: Sequence[ShardSpec], central: FloatArray) -> tuple[FloatArray, ...]:
    """The flat vector of each shard, copied out of the central one, float64 (P,). Bits are kept.

    It serves whatever has one element per parameter: gradients, moments. Raises ContractError on another length or
    dtype.
    """
    counts = [spec.parameter_count for spec in specs]
    if central.shape != (sum(counts),) or central.dtype != FLOAT64:
        raise ContractError(
            f"cannot split {central.dtype} {central.shape} into {len(specs)} shards: expected float64 ({sum(counts)},)"
        )
    return tuple(part.copy() for part in np.split(central, np.cumsum(counts)[:-1]))


def merge_parameters(specs: Sequence[ShardSpec], parts: Sequence[FloatArray]) -> FloatArray:
    """Inverse of `split_parameters`. Raises ContractError when a part is missing or does not fit its shard."""
    if len(parts) != len(specs):
        raise ContractError(f"cannot merge {len(parts)} parts into a model of {len(specs)} shards")
    for spec, part in zip(specs, parts, strict=True):
        if part.shape != (spec.parameter_count,) or part.dtype != FLOAT64:
            raise ContractError(
                f"shard {spec.index} of {spec.shard_count} gave {part.dtype} {part.shape},"
                f" expected float64 ({spec.parameter_count},); does it run the same cut of the same model?"
            )
    return np.concatenate(parts)
