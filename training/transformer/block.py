"""One pre-layer-norm block: x + attention(norm1(x)), then that + mlp(norm2(that)). Forward and backward.

Source: Radford et al. 2019 (GPT-2) for the order of norm and residual.
"""

from typing import NamedTuple

from training.arrays import FloatArray
from training.transformer.attention import AttentionCache, attention_backward, attention_forward
from training.transformer.layout import BlockParameters
from training.transformer.mlp import MlpCache, mlp_backward, mlp_forward
from training.transformer.norm import NormCache, norm_backward, norm_forward


class BlockCache(NamedTuple):
    """What `block_backward` needs of the forward pass."""

    norm1: NormCache
    attention: AttentionCache
    norm2: NormCache
    mlp: MlpCache


def block_forward(
    parameters: BlockParameters, head_count: int, rows: FloatArray, contexts: int
) -> tuple[FloatArray, BlockCache]:
    """New rows (N, d) for the rows (N, d) of `contexts` contexts; the argument stays as it was."""
    normed, norm1 = norm_forward(rows, parameters.norm1_gain, parameters.norm1_bias)
    between, attention = attention_forward(parameters, head_count, normed, contexts)
    between += rows
    normed, norm2 = norm_forward(between, parameters.norm2_gain, parameters.norm2_bias)
    result, mlp = mlp_forward(parameters, normed)
    result += between
    return result, BlockCache(norm1, attention, norm2, mlp)


def block_backward(
    parameters: BlockParameters, cache: BlockCache, gradient: FloatArray, to: BlockParameters
) -> FloatArray:
    """Gradient with respect to the rows, (N, d), for that of the result, (N, d); writes the parameters' into `to`."""
    through_mlp = mlp_backward(parameters, cache.mlp, gradient, to)
    between = norm_backward(cache.norm2, parameters.norm2_gain, through_mlp, to.norm2_gain, to.norm2_bias)
    between += gradient
    through_attention = attention_backward(parameters, cache.attention, between, to)
    result = norm_backward(cache.norm1, parameters.norm1_gain, through_attention, to.norm1_gain, to.norm1_bias)
    result += between
    return result
