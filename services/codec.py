"""Messages and frames to bytes and back: protobuf by field name, arrays with as few copies as possible.

`encode` gives the bytes of one `Frame`, `decode` understands one or raises `WireError`; nothing else ever escapes from
foreign bytes, and no size that they claim is believed before it was compared with what is there.

Dataclass and protobuf message have the same name and the same field names, so a plan per class, worked out at import,
is all there is. The large payload of a `Part` does not pass through protobuf: `encode` appends it to the encoded rest
(it is the last field of the last field), `decode` looks it up in place and returns a read-only view. Both are what
the published contract says; a frame whose fields stand in another order is decoded all the same, with a copy.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, fields
from operator import attrgetter
from typing import Any, get_args, get_origin, get_type_hints

import numpy as np
from google.protobuf.message import DecodeError
from google.protobuf.message import Message as ProtoMessage

from services.checksum import crc32
from services.frames import TransportFrame
from services.messages import Array, Member, Message, Numbered, Part, Share
from services.wire import messages_pb2 as pb
from services.wire_error import WireError

COUNT_BOUND = 2**63
IN_PLACE_BYTES_MIN = 4096  # smaller payloads are copied faster than looked up
_DTYPES = {"float64": np.dtype("<f8")}
_FIELDS_BEFORE_PAYLOAD_MAX = 32  # more of them are not looked through but left to protobuf
_LENGTH_DELIMITED = 2


# ---------------------------------------------------------------- fields
@dataclass(frozen=True, slots=True)
class _Plan:
    """How one class is translated, worked out once."""

    make: Callable[..., Any]
    proto: Callable[..., ProtoMessage]
    parse: Callable[[bytes], ProtoMessage]
    names: tuple[str, ...]
    get: Callable[[Any], tuple[Any, ...]]
    lower: tuple[tuple[int, Callable[[Any], Any]], ...]  # dataclass value -> protobuf value, where they differ
    lift: tuple[tuple[int, Callable[[Any], Any]], ...]  # protobuf value -> dataclass value; raises WireError
    prefix: bytes  # tag of the class in `Frame`


def _lowered(plan: _Plan, value: Any) -> ProtoMessage:
    values = list(plan.get(value))
    for place, lower in plan.lower:
        values[place] = lower(values[place])
    return plan.proto(**dict(zip(plan.names, values, strict=True)))


def _lifted(plan: _Plan, proto: ProtoMessage) -> Any:
    values = list(plan.get(proto))
    for place, lift in plan.lift:
        values[place] = lift(values[place])
    return plan.make(*values)


def _count(value: int) -> int:
    if value >= COUNT_BOUND:
        raise WireError(f"a count of {value}")
    return value


def _counts(values: Any) -> tuple[int, ...]:
    counts = tuple(values)
    if counts and max(counts) >= COUNT_BOUND:
        raise WireError(f"a count of {max(counts)}")
    return counts


# ---------------------------------------------------------------- arrays


def _payload(array: Array) -> memoryview:
    """The elements, C-ordered and little-endian, without a copy where they already are."""
    return np.ascontiguousarray(array, dtype="<f8").reshape(-1).data.cast("B")


def _tensor(array: Array) -> pb.Tensor:
    payload = _payload(array)
    return pb.Tensor(dtype="float64", shape=array.shape, crc32=crc32(payload), data=bytes(payload))


def array_from(header: pb.Tensor, data: bytes | memoryview) -> Array:
    """The array that `header` describes as a read-only view of `data`. Raises WireError before any allocation."""
    dtype = _DTYPES.get(header.dtype)
    if dtype is None:
        raise WireError(f"array of type {header.dtype[:40]!r}; only {', '.join(_DTYPES)} is understood")
    if len(header.shape) != 1:
        raise WireError(f"array of {len(header.shape)} dimensions; it must have one")
    count = header.shape[0]
    if count * dtype.itemsize != len(data):
        raise WireError(f"array of shape ({count},) needs {count * dtype.itemsize} bytes and has {len(data)}")
    if crc32(data) != header.crc32:
        raise WireError(f"array of {count} elements does not have the CRC that was sent with it")
    return np.frombuffer(data, dtype=dtype)


def _array(tensor: pb.Tensor) -> Array:
    return array_from(tensor, tensor.data)


def _named_tensors(arrays: tuple[tuple[str, Array], ...]) -> list[pb.NamedTensor]:
    return [pb.NamedTensor(name=name, tensor=_tensor(array)) for name, array in arrays]


def _named_arrays(tensors: Any) -> tuple[tuple[str, Array], ...]:
    return tuple((named.name, _array(named.tensor)) for named in tensors)


# ---------------------------------------------------------------- plans


def _nested(plan: _Plan) -> tuple[Callable[[Any], Any], Callable[[Any], Any]]:
    return (
        lambda values: [_lowered(plan, value) for value in values],
        lambda protos: tuple(_lifted(plan, proto) for proto in protos),
    )


def _translation(hint: Any) -> tuple[Callable[[Any], Any] | None, Callable[[Any], Any] | None]:
    """(lower, lift) of a field with this annotation; None where both sides have the same value."""
    if hint is int:
        return None, _count
    if hint in (str, bool, float, bytes):
        return None, None
    if hint == Array:
        return _tensor, _array
    arguments = get_args(hint)
    if get_origin(hint) is tuple and arguments[-1] is Ellipsis:
        if arguments[0] is int:
            return None, _counts
        if get_args(arguments[0]) == (str, Array):
            return _named_tensors, _named_arrays
        return _nested(_PLANS[arguments[0]])
    raise TypeError(f"no translation for a field of type {hint}")


def _getter(names: tuple[str, ...]) -> Callable[[Any], tuple[Any, ...]]:
    if not names:
        return lambda value: ()
    getter = attrgetter(*names)
    return getter if len(names) > 1 else lambda value: (getter(value),)


def _plan_of(kind: Any) -> _Plan:
    proto = getattr(pb, kind.__name__)
    hints = get_type_hints(kind)
    names = tuple(item.name for item in fields(kind))
    known = {item.name for item in proto.DESCRIPTOR.fields}
    if set(names) != known:
        raise TypeError(f"{kind.__name__} has other fields than its protobuf message: {sorted(set(names) ^ known)}")
    both = [_translation(hints[name]) for name in names]
    numbers = [item.number for item in pb.Frame.DESCRIPTOR.fields if item.message_type is proto.DESCRIPTOR]
    return _Plan(
        make=kind,
        proto=proto,
        parse=proto.FromString,
        names=names,
        get=_getter(names),
        lower=tuple((place, lower) for place, (lower, _) in enumerate(both) if lower is not None),
        lift=tuple((place, lift) for place, (_, lift) in enumerate(both) if lift is not None),
        prefix=_varint(numbers[0] << 3 | _LENGTH_DELIMITED) if numbers else b"",
    )


def _varint(value: int) -> bytes:
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


_PLANS: dict[type, _Plan] = {}
for _kind in (Member, Share, Numbered, *get_args(Message), *get_args(TransportFrame)):
    _PLANS[_kind] = _plan_of(_kind)
_PLAN_OF_TAG = {plan.prefix: plan for plan in _PLANS.values() if plan.prefix}
_PLAN_OF_BODY = {
    item.name: plan
    for item in pb.Frame.DESCRIPTOR.fields
    for plan in _PLANS.values()
    if item.message_type is plan.proto.DESCRIPTOR  # type: ignore[attr-defined]
}
_PART = _PLANS[Part]
_PART_DATA_TAG = _varint(pb.Part.DESCRIPTOR.fields_by_name["data"].number << 3 | _LENGTH_DELIMITED)
_TENSOR_PADDING_TAG = _varint(pb.Tensor.DESCRIPTOR.fields_by_name["padding"].number << 3 | _LENGTH_DELIMITED)
_TENSOR_DATA_TAG = _varint(pb.Tensor.DESCRIPTOR.fields_by_name["data"].number << 3 | _LENGTH_DELIMITED)


# ---------------------------------------------------------------- out


def encode(message: Message | TransportFrame) -> bytes:
    """The bytes of the `Frame` that carries this. Raises TypeError or ValueError on a field of the wrong type."""
    if type(message) is Part and message.data.nbytes >= IN_PLACE_BYTES_MIN:
        return _encode_part(message)
    plan = _PLANS[type(message)]
    body = _lowered(plan, message).SerializeToString()
    return b"".join((plan.prefix, _varint(len(body)), body))


def _encode_part(part: Part) -> bytes:
    """Header by protobuf, payload appended: the one copy is the one into the result."""
    head = pb.Part(
        generation=part.generation, step=part.step, attempt=part.attempt, lane=part.lane, index=part.index,
        count=part.count, start=part.start, total=part.total, summed=part.summed,
    ).SerializeToString()  # fmt: skip
    received = _frame_received(part.data)
    if received is not None and received.startswith(head + _PART_DATA_TAG, _tagged(received)[1]):
        return received  # passed on as it came: the same bytes, whose CRC was right
    payload = _payload(part.data)
    tensor = pb.Tensor(dtype="float64", shape=part.data.shape, crc32=crc32(payload)).SerializeToString()
    length = _varint(len(payload))
    for padding in range(9):  # one of them makes the payload start at a multiple of 8
        pad = b"".join((_TENSOR_PADDING_TAG, _varint(padding), bytes(padding)))
        inner = b"".join((tensor, pad, _TENSOR_DATA_TAG, length))
        outer = b"".join((head, _PART_DATA_TAG, _varint(len(inner) + len(payload)), inner))
        start = b"".join((_PART.prefix, _varint(len(outer) + len(payload)), outer))
        if len(start) % 8 == 0:
            break
    return b"".join((start, payload))


def _frame_received(array: Array) -> bytes | None:
    """The frame of a `Part` whose whole payload this array is a view of, if `decode` made it; see `_decode_part`."""
    view: Any = array.base
    if type(view) is not memoryview or type(view.obj) is not bytes:
        return None
    whole = view.nbytes == array.nbytes and len(view.obj) > view.nbytes
    return view.obj if whole and view.obj.startswith(_PART.prefix) else None


# ---------------------------------------------------------------- in


def decode(data: bytes, source: str = "") -> Message | TransportFrame:
    """What the frame carries; `source` is only named in errors. Raises WireError and nothing else."""
    try:
        plan, start = _tagged(data)
        if plan is None:
            return _decode_whole(data)
        if plan is _PART and len(data) >= IN_PLACE_BYTES_MIN:
            part = _decode_part(data, start)
            if part is not None:
                return part
        return _lifted(plan, plan.parse(data[start:]))  # type: ignore[no-any-return]
    except WireError as error:
        raise error.told_by(source) from None
    except DecodeError:
        raise WireError("bytes that are no frame", source) from None


def _tagged(data: bytes) -> tuple[_Plan | None, int]:
    """Plan and start of the one body that fills the frame; (None, 0) when the frame is laid out otherwise."""
    size = 1 if data[:1] < b"\x80" else 2
    plan = _PLAN_OF_TAG.get(data[:size])
    if plan is None:
        return None, 0
    length, start = _read_varint(data, size)
    return (plan, start) if start + length == len(data) else (None, 0)


def _decode_whole(data: bytes) -> Message | TransportFrame:
    frame = pb.Frame.FromString(data)
    body = frame.WhichOneof("body")
    if body is None:
        raise WireError("a frame without a known body")
    return _lifted(_PLAN_OF_BODY[body], getattr(frame, body))  # type: ignore[no-any-return]


def _decode_part(data: bytes, start: int) -> Part | None:
    """The part with its payload in place, or None when the payload is not where `encode` puts it."""
    outer = _last_field(data, start, _PART_DATA_TAG)
    inner = _last_field(data, outer[1], _TENSOR_DATA_TAG) if outer is not None else None
    if outer is None or inner is None:
        return None
    head = pb.Part.FromString(data[start : outer[0]])
    tensor = pb.Tensor.FromString(data[outer[1] : inner[0]])
    head_values = list(_PART.get(head))
    head_values[-1] = array_from(tensor, memoryview(data)[inner[1] :])
    for place, lift in _PART.lift[:-1]:
        head_values[place] = lift(head_values[place])
    return Part(*head_values)


def _last_field(data: bytes, start: int, tag: bytes) -> tuple[int, int] | None:
    """(start of the tag, start of the content) of the field `tag` that ends where `data` ends; None if there is none.

    Fields before it are stepped over. All tags of the messages concerned are one byte long.
    """
    at, end = start, len(data)
    for _ in range(_FIELDS_BEFORE_PAYLOAD_MAX):
        if at >= end:
            return None
        wire_type = data[at] & 7
        if data[at] > 0x7F:
            return None
        if wire_type == _LENGTH_DELIMITED:
            length, content = _read_varint(data, at + 1)
            if data[at] == tag[0]:
                return (at, content) if content + length == end else None
            at = content + length
        elif wire_type == 0:
            _, at = _read_varint(data, at + 1)
        elif wire_type == 5:
            at += 5
        elif wire_type == 1:
            at += 9
        else:
            return None
    return None


def _read_varint(data: bytes, at: int) -> tuple[int, int]:
    """(value, index behind it) of the varint at `at`. Raises WireError on one that does not end."""
    value = 0
    for shift in range(0, 70, 7):
        if at >= len(data):
            raise WireError("bytes that end within a number")
        byte = data[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
    raise WireError("a number that does not end")
