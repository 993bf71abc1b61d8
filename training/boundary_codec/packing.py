"""Unsigned numbers of b bits, one after the other without gaps, and back.

Neighbours are joined pairwise, in lanes that double until they have 64 bits, so that numpy works on many at a time: 8
lanes of 8 bits with 6 bits in each become 4 lanes of 16 with 12, 2 of 32 with 24, 1 of 64 with 48. Its lowest 6
bytes are the result. Byte order is that of the machine, which is little-endian wherever Gradstorm runs.
"""

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from training.boundary_codec.quantisation import Codes

assert sys.byteorder == "little"

_LANES: dict[int, np.dtype[Any]] = {bits: np.dtype(f"u{bits // 8}") for bits in (8, 16, 32, 64)}

Bytes = npt.NDArray[np.uint8]


def pack(codes: Codes, bits: int) -> Bytes:
    """ceil(K bits / 8) bytes for K numbers below 2^bits, uint8 (bits up to 8) or uint16; unused bits are 0."""
    size = -(-len(codes) * bits // 8)
    lane = codes.dtype.itemsize * 8
    if lane == bits:
        return codes.view(np.uint8)
    per_group = 64 // lane
    groups = -(-len(codes) // per_group)
    joined: npt.NDArray[Any] = np.zeros(groups * per_group, dtype=codes.dtype)
    joined[: len(codes)] = codes
    width = bits
    while lane < 64:
        pairs = joined.view(_LANES[2 * lane])
        low = pairs.dtype.type((1 << width) - 1)
        shift = pairs.dtype.type(lane - width)
        joined = (pairs & low) | ((pairs >> shift) & (low << pairs.dtype.type(width)))
        lane, width = 2 * lane, 2 * width
    return joined.view(np.uint8).reshape(groups, 8)[:, : width // 8].reshape(-1)[:size]


def unpack(packed: Bytes, count: int, bits: int) -> Codes:
    """Inverse of `pack`: `count` numbers out of exactly ceil(count bits / 8) bytes. Unused bits are not looked at."""
    smallest = 8 if bits <= 8 else 16
    if smallest == bits:
        return packed
    per_group = 64 // smallest
    groups = -(-count // per_group)
    group_bytes = per_group * bits // 8
    spread = np.zeros((groups, 8), dtype=np.uint8)
    whole = len(packed) // group_bytes
    spread[:whole, :group_bytes] = packed[: whole * group_bytes].reshape(whole, group_bytes)
    if whole < groups:
        rest = packed[whole * group_bytes :]
        spread[whole, : len(rest)] = rest
    lane, width = 64, per_group * bits
    parted: npt.NDArray[Any] = spread.reshape(-1)
    while lane > smallest:
        lane, width = lane // 2, width // 2
        pairs = parted.view(_LANES[2 * lane])
        low = pairs.dtype.type((1 << width) - 1)
        shift = pairs.dtype.type(lane - width)
        parted = ((pairs & low) | ((pairs & (low << pairs.dtype.type(width))) << shift)).view(np.uint8)
    codes: Codes = parted.view(_LANES[smallest])[:count]
    return codes


def spare_bits(packed: Bytes, count: int, bits: int) -> int:
    """The unused bits behind the last number, as a number; 0 in what `pack` gives."""
    used = count * bits % 8
    return int(packed[-1]) >> used if used else 0
