"""The codec written a second time, bit by bit and in no hurry, from its description alone."""

from __future__ import annotations

import math
import struct
from fractions import Fraction

Bits = list[int]


def bits_of(number: int, width: int) -> Bits:
    """Lowest bit first."""
    return [number >> place & 1 for place in range(width)]


def to_bytes(bits: Bits) -> bytes:
    """Bit j is bit j % 8 of byte j // 8."""
    padded = bits + [0] * (-len(bits) % 8)
    return bytes(sum(bit << place for place, bit in enumerate(padded[at : at + 8])) for at in range(0, len(padded), 8))


def kept_positions(values: list[float], keep_percent: int) -> list[int]:
    """The largest magnitudes, ties by lowest index; ascending."""
    count = math.ceil(Fraction(keep_percent * len(values), 100))
    by_size = sorted(range(len(values)), key=lambda index: (-abs(values[index]), index))
    return sorted(by_size[:count])


def quantised(values: list[float], bits: int) -> tuple[float, list[int]]:
    """Peak and q of every value; Python rounds half to even too."""
    peak, top = max((abs(value) for value in values), default=0.0), 2 ** (bits - 1) - 1
    return peak, [round(value / peak * top) if peak else 0 for value in values]


def encode(values: list[float], keep_percent: int, bits: int) -> bytes:
    """The payload."""
    kept = kept_positions(values, keep_percent)
    peak, numbers = quantised(values, bits)
    top = 2 ** (bits - 1) - 1
    count = len(values)
    width = 1 if count <= 256 else 2 if count <= 65536 else 4
    if len(kept) == count:
        kind, where = 1, b""
    elif math.ceil(count / 8) <= len(kept) * width:
        members = set(kept)
        kind, where = 2, to_bytes([int(index in members) for index in range(count)])
    else:
        kind, where = 3, b"".join(index.to_bytes(width, "little") for index in kept)
    packed = to_bytes([bit for index in kept for bit in bits_of(numbers[index] + top, bits)])
    return struct.pack("<BBBBId", 1, kind, keep_percent, bits, count, peak) + where + packed


def received(values: list[float], keep_percent: int, bits: int) -> list[float]:
    """What arrives."""
    kept = set(kept_positions(values, keep_percent))
    peak, numbers = quantised(values, bits)
    top = 2 ** (bits - 1) - 1
    return [number / top * peak if index in kept else 0.0 for index, number in enumerate(numbers)]
