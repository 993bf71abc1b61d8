"""The weighted sum of gradients in the one order that every strategy follows, and how it is cut in chunks.

grad L = sum_k (n_k / N) * grad L_k with N = sum_k n_k, summed in ascending worker id, left to right, starting
from the first contributor's scaled value: no zero to start from (0.0 + -0.0 loses a sign), no divide at the end.
Chunks are element-wise cuts, so a chunked sum equals the whole one bit by bit.

Duty of the caller: close the set of contributors and N before the first `scaled`.
"""

import itertools
from collections.abc import Sequence

import numpy as np

from training.arrays import FLOAT64, FloatArray, require_same_layout
from training.errors import ContractError


def scaled(gradient: FloatArray, sample_count: int, total: int) -> FloatArray:
    """Return (sample_count / total) * gradient as a new array; the quotient is one float64, rounded once.

    Raises ContractError unless 1 <= sample_count <= total and the gradient is float64.
    """
    if not 1 <= sample_count <= total:
        raise ContractError(
            f"a contribution of {sample_count} samples out of {total}: needs 1 <= samples <= total;"
            " a worker without samples is no contributor"
        )
    if gradient.dtype != FLOAT64:
        raise ContractError(f"gradient is {gradient.dtype}, it must be float64; nothing was summed")
    with np.errstate(all="ignore"):
        return (sample_count / total) * gradient


def add_in_order(accumulated: FloatArray, scaled: FloatArray) -> FloatArray:
    """Return accumulated + scaled as a new array. Raises ContractError on another shape or dtype."""
    require_same_layout(accumulated, scaled, "contribution against the running sum")
    with np.errstate(all="ignore"):
        return accumulated + scaled


def reduce_in_order(contributions: Sequence[tuple[int, int, FloatArray]]) -> FloatArray:
    """Reduce (worker id, sample count n_k, gradient) in ascending id, whatever order they are given in.

    Raises ContractError, before anything is summed, for an empty set, a repeated id, or arrays that differ in
    shape or dtype.
    """
    ordered = sorted(contributions, key=lambda contribution: contribution[0])
    if not ordered:
        raise ContractError("no contribution to reduce: a step needs at least one; open it again with a new deal")
    first = ordered[0][2]
    for before, (worker, _, gradient) in itertools.pairwise(ordered):
        if before[0] == worker:
            raise ContractError(f"worker {worker} contributes twice; nothing was summed")
        require_same_layout(first, gradient, f"gradient of worker {worker} against that of worker {ordered[0][0]}")
    total = sum(sample_count for _, sample_count, _ in ordered)
    result = scaled(first, ordered[0][1], total)
    for _, sample_count, gradient in ordered[1:]:
        result = add_in_order(result, scaled(gradient, sample_count, total))
    return result


def chunk_bounds(element_count: int, chunk_elements: int) -> tuple[tuple[int, int], ...]:
    """Cut [0, element_count) into consecutive (start, stop) of chunk_elements; only the last may be shorter.

    No element gives no chunk. Raises ContractError for a negative count or a chunk below 1 element.
    """
    if element_count < 0 or chunk_elements < 1:
        raise ContractError(f"cannot cut {element_count} elements into chunks of {chunk_elements}; needs >= 0 and >= 1")
    starts = range(0, element_count, chunk_elements)
    return tuple((start, min(start + chunk_elements, element_count)) for start in starts)
