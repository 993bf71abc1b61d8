"""Token plus position embedding, forward and backward."""

import numpy as np

from training.arrays import FloatArray, IntArray
from training.transformer.layout import EmbeddingParameters


def embedding_forward(parameters: EmbeddingParameters, tokens: IntArray) -> FloatArray:
    """Rows (N, d) for tokens int64 (b, t) in 0 .. v-1: the token's vector plus the position's."""
    rows = parameters.token[tokens]
    rows += parameters.position[: tokens.shape[1]]
    return rows.reshape(tokens.size, -1)


def embedding_backward(tokens: IntArray, gradient: FloatArray, to: EmbeddingParameters) -> None:
    """Write into `to` the gradients for that of the rows, (N, d).

    A token's rows are added up in order of position in the micro-batch; one that does not occur gets zeros, as does
    a position beyond the contexts' length.
    """
    flat = tokens.reshape(-1)
    order = np.argsort(flat, kind="stable")
    ordered = flat[order]
    starts = np.flatnonzero(np.concatenate(([True], ordered[1:] != ordered[:-1])))
    to.token[:] = 0.0
    to.token[ordered[starts]] = np.add.reduceat(gradient[order], starts, axis=0)
    to.position[:] = 0.0
    by_context = gradient.reshape(*tokens.shape, -1)
    np.add.reduce(by_context, axis=0, out=to.position[: tokens.shape[1]])
