"""The bytes of a payload, all little-endian; n elements, of which K = ceil(k n / 100) are kept.

    offset  size  field
    0       1     format: 1
    1       1     positions: 0 dense, 1 all kept, 2 bitmap, 3 indices
    2       1     k, the percentage kept, 1 .. 100; 0 if dense
    3       1     b, bits per kept value: 4, 6, 8 or 12; 0 if dense
    4       4     n, unsigned
    8             dense: n float64, and that is all
    8       8     peak, float64: the largest magnitude
    16            positions: nothing if all are kept; else a bitmap of ceil(n / 8) bytes (element i is bit i % 8 of byte
                  i // 8, unused bits 0), or K ascending unsigned indices of 1, 2 or 4 bytes (n up to 2^8, 2^16, 2^32).
                  Whichever is smaller, the bitmap if equal.
                  values: ceil(K b / 8) bytes; kept value i, in order of position, is bits i b .. (i + 1) b - 1, where
                  bit j is bit j % 8 of byte j // 8; unused bits 0

A kept value's number is q + Q with Q = 2^(b-1) - 1 and q = -Q .. Q the quantised value; 2^b - 1 does not occur. So the
length of a payload follows from n, k and b alone.
"""

import struct
from dataclasses import dataclass
from typing import Final, Literal

from training.errors import ConfigurationError, ContractError

BITS = (4, 6, 8, 12)
FORMAT = 1
PREFIX_BYTES = 8
HEADER_BYTES = 16
MAX_ELEMENTS = 2**32 - 1

Positions = Literal[0, 1, 2, 3]
DENSE: Final = 0
ALL: Final = 1
BITMAP: Final = 2
INDICES: Final = 3


@dataclass(frozen=True, slots=True)
class Plan:
    """How n elements are laid out at (k, b): what follows the header, in bytes and counts."""

    element_count: int
    keep_percent: int
    bits: int
    kept_count: int
    positions: Positions
    position_bytes: int
    value_bytes: int

    @property
    def total_bytes(self) -> int:
        """Length of the payload."""
        return HEADER_BYTES + self.position_bytes + self.value_bytes

    @property
    def index_width(self) -> int:
        """Bytes of one index."""
        return index_width(self.element_count)


def require_settings(keep_percent: int, bits: int) -> None:
    """Raise ConfigurationError unless keep_percent is in 1 .. 100 and bits is 4, 6, 8 or 12."""
    if not _is_whole(keep_percent) or not 1 <= keep_percent <= 100:
        raise ConfigurationError(
            f"compression keeps {keep_percent!r} % of a boundary; it must be a whole number in 1 .. 100"
        )
    if not _is_whole(bits) or bits not in BITS:
        raise ConfigurationError(f"compression has {bits!r} bits per value; choose one of: 4, 6, 8, 12")


def payload_bytes(element_count: int, keep_percent: int, bits: int) -> int:
    """Length in bytes of `encode`'s payload for this many elements. Raises as `plan` does."""
    return plan(element_count, keep_percent, bits).total_bytes


def plan(element_count: int, keep_percent: int, bits: int) -> Plan:
    """The layout. Raises ConfigurationError for k or b out of range, ContractError for a count outside of 32 bits."""
    require_settings(keep_percent, bits)
    require_count(element_count)
    kept = -(-keep_percent * element_count // 100)
    bitmap, indices = -(-element_count // 8), kept * index_width(element_count)
    value_bytes = -(-kept * bits // 8)
    if kept == element_count:
        return Plan(element_count, keep_percent, bits, kept, ALL, 0, value_bytes)
    if bitmap <= indices:
        return Plan(element_count, keep_percent, bits, kept, BITMAP, bitmap, value_bytes)
    return Plan(element_count, keep_percent, bits, kept, INDICES, indices, value_bytes)


def index_width(element_count: int) -> int:
    """Bytes of one index into this many elements."""
    return 1 if element_count <= 1 << 8 else 2 if element_count <= 1 << 16 else 4


def require_count(element_count: int) -> None:
    """Raise ContractError unless the count fits the header."""
    if not 0 <= element_count <= MAX_ELEMENTS:
        raise ContractError(f"a boundary of {element_count} elements; a payload holds 0 .. {MAX_ELEMENTS}")


def prefix(positions: Positions, keep_percent: int, bits: int, element_count: int) -> bytes:
    """The first 8 bytes."""
    return struct.pack("<BBBBI", FORMAT, positions, keep_percent, bits, element_count)


def read_plan(payload: bytes | memoryview, element_count: int) -> Plan | None:
    """The layout that a payload claims, None for a dense one, once everything about it fits.

    Raises ContractError unless it is of this format, for exactly `element_count` elements, with settings that exist,
    the positions that they imply, and exactly the length that follows. Looks at 8 bytes only.
    """
    require_count(element_count)
    if len(payload) < PREFIX_BYTES:
        raise ContractError(f"a boundary payload of {len(payload)} bytes is cut short; nothing was decoded")
    form, positions, keep_percent, bits, count = struct.unpack_from("<BBBBI", payload)
    if form != FORMAT:
        raise ContractError(f"a boundary payload of format {form}; this version reads format {FORMAT}")
    if count != element_count:
        raise ContractError(f"a boundary payload of {count} elements where {element_count} are expected")
    if positions == DENSE:
        if keep_percent or bits:
            raise ContractError(f"a dense boundary payload claims top{keep_percent}/{bits}-bit; it is damaged")
        _require_length(payload, PREFIX_BYTES + 8 * count)
        return None
    try:
        expected = plan(count, keep_percent, bits)
    except ConfigurationError as error:
        raise ContractError(f"a boundary payload claims what cannot be: {error}") from error
    if positions != expected.positions:
        raise ContractError(
            f"a boundary payload has positions of kind {positions}; {count} elements at top{keep_percent}/{bits}-bit"
            f" need kind {expected.positions}"
        )
    _require_length(payload, expected.total_bytes)
    return expected


def _require_length(payload: bytes | memoryview, expected: int) -> None:
    if len(payload) != expected:
        raise ContractError(f"a boundary payload has {len(payload)} bytes instead of {expected}; nothing was decoded")


def _is_whole(value: object) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)
