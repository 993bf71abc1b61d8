"""Error feedback on a boundary: for the diagnostic only, refused everywhere else.

Error feedback (Seide et al. 2014) adds what the codec dropped to the next thing that is sent. It helps where successive
messages estimate one quantity, as gradients do. Successive boundary activations belong to other samples.
"""

import numpy as np

from training.arrays import FloatArray
from training.boundary_codec.codec import decode, encode
from training.boundary_codec.payload import require_settings
from training.errors import ContractError

WHY_UNSUPPORTED = (
    "error feedback on boundary activations is not supported: a residual carried across independent batches distorts"
    " the signal. Measured on the committed model (`gradstorm experiments --diagnostic`): evaluation loss +0.958 over"
    " the baseline with it and +0.272 without at top25/8-bit, +0.911 and +0.855 at top10/4-bit"
)


class ErrorFeedback:
    """One boundary (one cut, one direction) with its residual; unsupported, see `WHY_UNSUPPORTED`."""

    def __init__(self, keep_percent: int, bits: int) -> None:
        """Start without a residual. Raises ConfigurationError as `encode` does."""
        require_settings(keep_percent, bits)
        self._settings = (keep_percent, bits)
        self._residual: FloatArray | None = None

    def encode(self, values: FloatArray) -> bytes:
        """Payload of values + residual; what it drops is the next residual. Raises as `encode`, and ContractError for
        another shape than before; the residual then stays as it was."""
        if self._residual is not None and self._residual.shape != values.shape:
            raise ContractError(f"a boundary of shape {values.shape} after one of {self._residual.shape}")
        with np.errstate(all="ignore"):
            corrected = values if self._residual is None else values + self._residual
            payload = encode(corrected, *self._settings)
            self._residual = corrected - decode(payload, values.size).reshape(values.shape)
        return payload
