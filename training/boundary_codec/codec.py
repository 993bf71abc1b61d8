"""Encode and decode a boundary. `training.boundary_codec.payload` has the bytes."""

import math
import struct
from typing import Any

import numpy as np
import numpy.typing as npt

from training.arrays import FLOAT64, FloatArray
from training.boundary_codec.packing import pack, spare_bits, unpack
from training.boundary_codec.payload import (
    ALL,
    BITMAP,
    DENSE,
    HEADER_BYTES,
    PREFIX_BYTES,
    Plan,
    plan,
    prefix,
    read_plan,
    require_count,
)
from training.boundary_codec.quantisation import quantise, restore
from training.boundary_codec.selection import largest
from training.errors import ContractError, NonFiniteError

_INDEX_TYPES: dict[int, np.dtype[Any]] = {1: np.dtype("u1"), 2: np.dtype("<u2"), 4: np.dtype("<u4")}

Indices = npt.NDArray[np.intp]


def encode(values: FloatArray, keep_percent: int, bits: int) -> bytes:
    """Keep the ceil(keep_percent / 100 * n) largest magnitudes (ties by lowest index), quantised to `bits` bits.

    values float64 of any shape, taken in C order; n = 0 is allowed. Raises NonFiniteError for NaN or infinity,
    ConfigurationError for keep_percent outside of 1 .. 100 or bits not in 4, 6, 8, 12, ContractError for another dtype.
    """
    flat = _flat(values)
    layout = plan(flat.size, keep_percent, bits)
    magnitudes = np.abs(flat)
    peak = _peak(flat, magnitudes)
    where, kept = b"", flat
    if layout.positions != ALL:
        mask = largest(magnitudes, layout.kept_count)
        indices = np.flatnonzero(mask)
        kept = flat.take(indices)
        packed_mask = layout.positions == BITMAP
        where = np.packbits(mask, bitorder="little").tobytes() if packed_mask else _index_bytes(indices, layout)
    codes = pack(quantise(kept, peak, bits), bits)
    head = prefix(layout.positions, keep_percent, bits, flat.size)
    return b"".join((head, struct.pack("<d", peak), where, codes.data))


def encode_dense(values: FloatArray) -> bytes:
    """All values, bit by bit. Raises NonFiniteError for NaN or infinity, ContractError for another dtype."""
    flat = _flat(values)
    require_count(flat.size)
    _peak(flat, np.abs(flat))
    return b"".join((prefix(DENSE, 0, 0, flat.size), flat.data))


def decode(payload: bytes | memoryview, element_count: int) -> FloatArray:
    """The values, float64 (element_count,), new and writeable; 0.0 where nothing was kept.

    Raises ContractError for anything that `encode` and `encode_dense` cannot have made: another format, count, length
    or order of positions, a bit set where none belongs, a number out of range, a peak that is no finite magnitude.
    """
    layout = read_plan(payload, element_count)
    if layout is None:
        values = np.frombuffer(payload, dtype="<f8", offset=PREFIX_BYTES).astype(np.float64)
        if not np.isfinite(values).all():
            raise ContractError("a dense boundary payload holds NaN or infinity; it is damaged")
        return values
    (peak,) = struct.unpack_from("<d", payload, PREFIX_BYTES)
    if not math.isfinite(peak) or math.copysign(1.0, peak) < 0.0 or (peak and not element_count):
        raise ContractError(f"a boundary payload of {element_count} elements has a peak of {peak}; it is damaged")
    content = np.frombuffer(payload, dtype=np.uint8, offset=HEADER_BYTES)
    indices = _read_indices(content[: layout.position_bytes], layout)
    kept = _read_values(content[layout.position_bytes :], layout, peak)
    if indices is None:
        return kept
    values = np.zeros(element_count)
    values[indices] = kept
    return values


def _flat(values: FloatArray) -> FloatArray:
    if values.dtype != FLOAT64:
        raise ContractError(f"a boundary is {values.dtype}, it must be float64; nothing was encoded")
    return np.ascontiguousarray(values).reshape(-1)


def _peak(flat: FloatArray, magnitudes: FloatArray) -> float:
    """The largest magnitude, 0.0 of none."""
    peak = float(magnitudes.max(initial=0.0))
    if not np.isfinite(peak):
        at = int(np.flatnonzero(~np.isfinite(flat))[0])
        raise NonFiniteError(f"element {at} of a boundary of {flat.size} is {flat[at]}; nothing was encoded")
    return peak


def _index_bytes(indices: Indices, layout: Plan) -> bytes:
    return indices.astype(_INDEX_TYPES[layout.index_width]).tobytes()


def _read_indices(content: npt.NDArray[np.uint8], layout: Plan) -> Indices | None:
    """Where the kept values stand, ascending; None for everywhere."""
    if layout.positions == ALL:
        return None
    if layout.positions == BITMAP:
        mask = np.unpackbits(content, bitorder="little")
        indices = np.flatnonzero(mask.view(np.bool_))
        in_order = True
    else:
        indices = content.view(_INDEX_TYPES[layout.index_width]).astype(np.intp)
        in_order = bool((indices[1:] > indices[:-1]).all())
    if len(indices) != layout.kept_count or not in_order or indices[-1] >= layout.element_count:
        raise ContractError(
            f"a boundary payload has positions that are not {layout.kept_count} ascending ones below"
            f" {layout.element_count}; it is damaged"
        )
    return indices


def _read_values(content: npt.NDArray[np.uint8], layout: Plan, peak: float) -> FloatArray:
    codes = unpack(content, layout.kept_count, layout.bits)
    top = 2 ** (layout.bits - 1) - 1
    if layout.kept_count and (int(codes.max()) > 2 * top or spare_bits(content, layout.kept_count, layout.bits)):
        raise ContractError(f"a boundary payload has a value outside of {layout.bits} symmetric bits; it is damaged")
    if peak == 0.0 and not (codes == top).all():
        raise ContractError("a boundary payload has values other than 0 under a peak of 0; it is damaged")
    return restore(codes, peak, layout.bits)
