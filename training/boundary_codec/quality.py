"""How much of a boundary survived its codec, and at what price."""

import math
from dataclasses import dataclass

import numpy as np

from training.arrays import FloatArray
from training.errors import ContractError


@dataclass(frozen=True, slots=True)
class BoundaryStats:
    """density: share (0 .. 1) of decoded elements that are not zero. payload_bytes: length of the payload.

    ratio: bytes of the float64 values (8 n) over payload_bytes. max_error, rms_error: of decoded against the values, in
    the values' unit. No element: density, ratio and errors are 0.
    """

    density: float
    payload_bytes: int
    ratio: float
    max_error: float
    rms_error: float


def stats(values: FloatArray, decoded: FloatArray, payload: bytes | memoryview) -> BoundaryStats:
    """values float64 of any shape with n elements, decoded float64 (n,). Raises ContractError when the sizes differ.

    The root mean square is taken relative to the largest error, so that errors near 1e300 do not overflow.
    """
    if values.size != decoded.size:
        raise ContractError(f"{decoded.size} decoded elements of a boundary of {values.size}; they cannot be compared")
    count, size = values.size, len(payload)
    if count == 0:
        return BoundaryStats(0.0, size, 0.0, 0.0, 0.0)
    errors = np.abs(values.reshape(-1) - decoded.reshape(-1))
    largest = float(errors.max())
    density = int(np.count_nonzero(decoded)) / count
    rms = 0.0
    if largest > 0.0:
        errors /= largest
        rms = largest * math.sqrt(float(errors @ errors) / count)
    return BoundaryStats(density, size, 8 * count / size, largest, rms)
