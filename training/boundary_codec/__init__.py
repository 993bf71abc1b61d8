"""What a boundary looks like on the wire: the largest values, quantised, packed to the bit; or all of them, dense.

    payload = encode(values, keep_percent, bits)        or encode_dense(values)
    received = decode(payload, element_count)
    quality = stats(values, received, payload)

`payload` says what the bytes mean, `selection` which values are kept, `quantisation` how they become whole numbers,
`packing` how those become bits. A payload carries no checksum: the transport has one. `decode` is strict: bytes that
`encode` cannot have made are refused before anything is allocated.
"""

from training.boundary_codec.codec import decode, encode, encode_dense
from training.boundary_codec.feedback import WHY_UNSUPPORTED, ErrorFeedback
from training.boundary_codec.payload import BITS, payload_bytes, require_settings
from training.boundary_codec.quality import BoundaryStats, stats

__all__ = [
    "BITS",
    "WHY_UNSUPPORTED",
    "BoundaryStats",
    "ErrorFeedback",
    "decode",
    "encode",
    "encode_dense",
    "payload_bytes",
    "require_settings",
    "stats",
]
