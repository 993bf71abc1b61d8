"""The two array types of `training`, and the one check that they share."""

import numpy as np
import numpy.typing as npt

from training.errors import ContractError

FLOAT64 = np.dtype(np.float64)

FloatArray = npt.NDArray[np.float64]
"""float64; in this package always C-contiguous."""

IntArray = npt.NDArray[np.int64]
"""int64; class labels and sample ids."""


def require_same_layout(first: FloatArray, second: FloatArray, what: str) -> None:
    """Raise ContractError unless both are float64 arrays of one shape; `what` names the second one."""
    if first.dtype != FLOAT64 or second.dtype != FLOAT64:
        raise ContractError(
            f"{what}: dtypes {first.dtype} and {second.dtype}, both must be float64; nothing was summed"
        )
    if first.shape != second.shape:
        raise ContractError(
            f"{what}: shapes {first.shape} and {second.shape} differ; nothing was summed. Check that both roles run the"
            " same model configuration"
        )
