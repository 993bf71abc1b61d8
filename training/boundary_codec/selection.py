"""Which elements are kept: the largest magnitudes, ties by the lowest index."""

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray

Mask = npt.NDArray[np.bool_]


def largest(magnitudes: FloatArray, count: int) -> Mask:
    """Mask (n,) of the `count` largest of the magnitudes, float64 (n,), finite and not negative; 1 <= count <= n.

    Magnitudes compare as their bit patterns do, so the selection runs on integers.
    """
    ordered = magnitudes.view(np.int64)
    cut = len(ordered) - count
    threshold = np.partition(ordered, cut)[cut]
    mask: Mask = ordered >= threshold
    surplus = int(np.count_nonzero(mask)) - count
    if surplus:
        ties = np.flatnonzero(ordered == threshold)
        mask[ties[len(ties) - surplus :]] = False
    return mask
