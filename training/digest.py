"""The digest by which two roles agree that they hold the same bits."""

import hashlib

import numpy as np
import numpy.typing as npt

from training.errors import ContractError

_CANONICAL = np.dtype("<f8")


def array_digest(array: npt.NDArray[np.float64]) -> str:
    """SHA-256, hex, over the array's elements in C order as little-endian float64.

    It sees bits, not numbers: -0.0 differs from 0.0, and two NaN with other payloads differ. The shape is not
    part of it. Raises ContractError for another dtype.
    """
    if array.dtype.kind != "f" or array.dtype.itemsize != _CANONICAL.itemsize:
        raise ContractError(f"cannot digest {array.dtype}: only float64 has a canonical form here")
    canonical = np.ascontiguousarray(array, dtype=_CANONICAL)
    return hashlib.sha256(canonical.reshape(-1).data).hexdigest()
