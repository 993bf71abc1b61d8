"""Symmetric quantisation to b bits, in float64, each operation rounded once:

    Q = 2^(b-1) - 1     q = round_half_even((v / peak) * Q)     back: (q / Q) * peak

That is a scale of peak / Q, written so that nothing over- or underflows on the way, be the peak 1e308 or the smallest
subnormal, and so that the peak itself comes back exactly. A peak of 0 gives q = 0. What comes back is within half a
step, peak / Q / 2, of v (and the rounding of the last operation).
"""

import numpy as np
import numpy.typing as npt

from training.arrays import FloatArray

Codes = npt.NDArray[np.uint8] | npt.NDArray[np.uint16]


def quantise(values: FloatArray, peak: float, bits: int) -> Codes:
    """Numbers q + Q of the values, float64 (K,), |v| <= peak; uint8 (K,) for up to 8 bits, else uint16 (K,)."""
    top = float(2 ** (bits - 1) - 1)
    if peak == 0.0:
        return _whole(np.full(values.shape, top), bits)
    scaled = values / peak
    scaled *= top
    np.rint(scaled, out=scaled)
    scaled += top
    return _whole(scaled, bits)


def restore(codes: Codes, peak: float, bits: int) -> FloatArray:
    """Values, float64 (K,), of the numbers, each at most 2 Q; those of q = 0 are +0.0."""
    top = float(2 ** (bits - 1) - 1)
    table = np.arange(2 * top + 1)  # one value for each number there can be: looked up, not worked out K times
    table -= top
    table /= top
    table *= peak
    return np.take(table, codes)


def _whole(numbers: FloatArray, bits: int) -> Codes:
    return numbers.astype(np.uint8) if bits <= 8 else numbers.astype(np.uint16)
