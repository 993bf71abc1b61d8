"""The verifier's own writing of the boundary format, element by element where that is clearer than fast.

Layout, little-endian: format 1, positions (0 dense, 1 all kept, 2 bitmap, 3 indices), k, b, n (4 bytes); if dense:
float64; else peak (float64), positions, then the kept values' numbers q + Q, b bits each, packed from the lowest bit.
"""

from __future__ import annotations

import math
import struct

import numpy as np
import numpy.typing as npt

from services.messages import Array

Places = npt.NDArray[np.int64]


def encode(values: Array, keep_percent: int, bits: int) -> bytes:
    """The payload of flat float64 values; keep_percent 0 is dense."""
    count = values.size
    if keep_percent == 0:
        return struct.pack("<BBBBI", 1, 0, 0, 0, count) + values.astype("<f8").tobytes()
    kept = math.ceil(keep_percent * count / 100)
    order = np.lexsort((np.arange(count), -np.abs(values)))[:kept]  # by magnitude, ties by place
    places = np.sort(order)
    chosen = values[places]
    peak = float(np.max(np.abs(chosen))) if kept else 0.0
    top = 2 ** (bits - 1) - 1
    codes = np.full(kept, top) if peak == 0.0 else (np.rint(chosen / peak * top) + top).astype(np.int64)
    kind, where = _positions(places, count)
    head = struct.pack("<BBBBId", 1, kind, keep_percent, bits, count, peak)
    return head + where + _packed(codes, bits)


def decode(payload: bytes, count: int) -> Array:
    """Flat float64 values. Raises ValueError for what is no payload of `count` values."""
    version, kind, keep_percent, bits, told = struct.unpack_from("<BBBBI", payload)
    if version != 1 or told != count:
        raise ValueError("another format, or another number of values")
    if kind == 0:
        return np.frombuffer(payload, dtype="<f8", offset=8).astype(np.float64)
    kept = math.ceil(keep_percent * count / 100)
    (peak,) = struct.unpack_from("<d", payload, 8)
    places, offset = _read_positions(payload, kind, count, kept)
    top = 2 ** (bits - 1) - 1
    codes = _unpacked(payload[offset:], kept, bits)
    values = np.zeros(count)
    values[places] = (codes.astype(np.float64) - top) / top * peak
    return values


def _positions(places: Places, count: int) -> tuple[int, bytes]:
    if len(places) == count:
        return 1, b""
    width = 1 if count <= 2**8 else 2 if count <= 2**16 else 4
    if (count + 7) // 8 <= width * len(places):
        mask = np.zeros(count, dtype=np.uint8)
        mask[places] = 1
        return 2, np.packbits(mask, bitorder="little").tobytes()
    return 3, places.astype(f"<u{width}").tobytes()


def _read_positions(payload: bytes, kind: int, count: int, kept: int) -> tuple[Places, int]:
    if kind == 1:
        return np.arange(count), 16
    if kind == 2:
        size = (count + 7) // 8
        bits = np.unpackbits(np.frombuffer(payload, np.uint8, size, 16), bitorder="little")[:count]
        return np.flatnonzero(bits), 16 + size
    width = 1 if count <= 2**8 else 2 if count <= 2**16 else 4
    return np.frombuffer(payload, f"<u{width}", kept, 16).astype(np.int64), 16 + width * kept


def _packed(codes: Places, bits: int) -> bytes:
    spread = (codes[:, None] >> np.arange(bits)) & 1
    return np.packbits(spread.astype(np.uint8).reshape(-1), bitorder="little").tobytes()


def _unpacked(content: bytes, count: int, bits: int) -> Places:
    flat = np.unpackbits(np.frombuffer(content, np.uint8), bitorder="little")[: count * bits].reshape(count, bits)
    numbers: Places = (flat.astype(np.int64) << np.arange(bits)).sum(axis=1)
    return numbers
