"""Messages survive the wire, the bytes are what the published contract says, and nothing else is understood."""

from __future__ import annotations

import time
import tracemalloc
import zlib
from dataclasses import fields, is_dataclass, replace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from services.codec import IN_PLACE_BYTES_MIN, decode, encode
from services.frames import Fragment, Heartbeat, Hello, Identify
from services.messages import Applied, Array, Numbered, Offer, Part, Report
from services.wire import messages_pb2 as pb
from services.wire_error import WireError
from tests.fuzz.drawn import FRAME_KINDS, instance_of

ARRAYS = hnp.arrays(np.float64, st.integers(0, 9))
SCALARS: dict[Any, st.SearchStrategy[Any]] = {
    int: st.integers(0, 2**63 - 1),
    float: st.floats(allow_nan=False),
    str: st.text(),
    bool: st.booleans(),
    bytes: st.binary(),
    Array: ARRAYS,
}


FRAMES = st.one_of([instance_of(kind, SCALARS) for kind in FRAME_KINDS])


def same(left: Any, right: Any) -> bool:
    """Equality that sees types and array bits."""
    if type(left) is not type(right):
        return False
    if is_dataclass(left):
        return all(same(getattr(left, item.name), getattr(right, item.name)) for item in fields(left))
    if isinstance(left, np.ndarray):
        return bool(left.dtype == right.dtype and left.shape == right.shape and left.tobytes() == right.tobytes())
    if isinstance(left, tuple):
        return len(left) == len(right) and all(map(same, left, right))
    return bool(left == right)


def part(elements: int, **changes: Any) -> Part:
    data = np.arange(elements, dtype=np.float64)
    return replace(Part(4, 5, 1, "chain", 0, 1, 0, elements, (1, 2), data), **changes)


# ---------------------------------------------------------------- round trips


@given(FRAMES)
def test_every_frame_survives_the_wire(frame: Any) -> None:
    assert same(decode(encode(frame)), frame)


@given(FRAMES)
def test_the_bytes_are_the_published_contract(frame: Any) -> None:
    plain = pb.Frame.FromString(encode(frame))
    body = plain.WhichOneof("body")
    assert body is not None
    assert type(getattr(plain, body)).__name__ == type(frame).__name__
    assert same(decode(plain.SerializeToString()), frame)


@pytest.mark.parametrize("elements", [0, 1, 511, 512, 513, 4096, 131_072, 131_073])
@pytest.mark.parametrize("summed", [(), (1,), (1, 2, 3), tuple(range(1, 200))])
def test_parts_of_every_size(elements: int, summed: tuple[int, ...]) -> None:
    sent = part(elements, summed=summed, start=2**40, total=2**41)
    data = encode(sent)
    assert same(decode(data), sent)
    plain = pb.Frame.FromString(data).part
    assert plain.data.data == sent.data.tobytes()
    assert plain.data.crc32 == zlib.crc32(sent.data.tobytes())
    assert tuple(plain.summed) == summed


@given(st.integers(0, 2**62), st.integers(0, 300), st.integers(512, 600))
def test_a_large_payload_is_read_in_place_and_aligned(step: int, summed: int, elements: int) -> None:
    data = encode(part(elements, step=step, summed=tuple(range(summed))))
    received = decode(data)
    assert isinstance(received, Part)
    assert not received.data.flags.owndata
    assert not received.data.flags.writeable
    assert received.data.flags.aligned
    assert np.shares_memory(received.data, np.frombuffer(data, np.uint8))


def test_special_values_keep_their_bits() -> None:
    bits = np.array([0x8000000000000000, 0x7FF8000000000001, 0x7FF8DEADBEEF0000, 1, 0xFFF0000000000000], np.uint64)
    sent = part(0, data=np.tile(bits.view(np.float64), 200))
    received = decode(encode(sent))
    assert isinstance(received, Part)
    assert received.data.tobytes() == sent.data.tobytes()


def test_strided_and_big_endian_arrays_arrive_canonical() -> None:
    values = np.arange(2000, dtype=np.float64)
    for data in (values[::2], values.astype(">f8")):
        received = decode(encode(part(0, data=data)))
        assert isinstance(received, Part)
        assert received.data.dtype == np.dtype("<f8")
        assert received.data.tolist() == data.tolist()


def test_frame_has_a_body_for_every_message_and_no_other() -> None:
    bodies = {item.message_type.name for item in pb.Frame.DESCRIPTOR.fields if item.message_type is not None}
    assert bodies == {kind.__name__ for kind in FRAME_KINDS}


# ---------------------------------------------------------------- refusals


def tensor(**changes: Any) -> pb.Tensor:
    payload = np.arange(600, dtype="<f8").tobytes()
    values: dict[str, Any] = {"dtype": "float64", "shape": [600], "crc32": zlib.crc32(payload), "data": payload}
    return pb.Tensor(**{**values, **changes})


def frame_of(wrong: pb.Tensor) -> bytes:
    return bytes(pb.Frame(part=pb.Part(index=0, count=1, data=wrong)).SerializeToString())


BAD: dict[str, bytes] = {
    "float32": frame_of(tensor(dtype="float32")),
    "object": frame_of(tensor(dtype="object")),
    "no dtype": frame_of(tensor(dtype="")),
    "more elements": frame_of(tensor(shape=[601])),
    "fewer elements": frame_of(tensor(shape=[599])),
    "2^31 x 2^31": frame_of(tensor(shape=[2**31, 2**31])),
    "2^63 elements": frame_of(tensor(shape=[2**63])),
    "wraps to the right size": frame_of(tensor(shape=[2**61 + 600])),
    "no shape": frame_of(tensor(shape=[])),
    "two dimensions": frame_of(tensor(shape=[20, 30])),
    "crc": frame_of(tensor(crc32=1)),
    "no tensor": bytes(pb.Frame(part=pb.Part()).SerializeToString()),
    "not whole elements": frame_of(tensor(shape=[1], data=b"\0" * 7)),
    "empty": b"",
    "unknown body": b"\xfa\x07\x00",
    "only an unknown field": b"\x08\x01",
    "a pickle": b"\x80\x04\x95\x1a\x00\x00\x00\x00\x00\x00\x00\x8c\x05posix\x94\x8c\x06system\x94\x93\x94.",
    "truncated": encode(part(600))[:-1],
    "text that is no UTF-8": encode(Hello("ab", 1, 0, "")).replace(b"ab", b"\xff\xfe"),
    "count of 2^63": bytes(pb.Frame(identify=pb.Identify(incarnation=2**63)).SerializeToString()),
    "sample id of 2^64-1": bytes(pb.Frame(offer=pb.Offer(sample_ids=[2**64 - 1])).SerializeToString()),
    "number without end": b"\xf2\x01" + b"\xff" * 20,
    "group": b"\x0b" * 100,
}


@pytest.mark.parametrize("name", BAD)
def test_anything_else_is_refused_by_name_of_the_sender(name: str) -> None:
    with pytest.raises(WireError, match=r"^worker-9: ") as caught:
        decode(BAD[name], "worker-9")
    assert caught.value.source == "worker-9"


@pytest.mark.alone
def test_claimed_sizes_are_not_believed() -> None:
    claims = [frame_of(tensor(shape=[2**31, 2**31])), frame_of(tensor(shape=[2**60])), BAD["unknown body"]]
    tracemalloc.start()
    began = time.perf_counter()
    for data in claims:
        with pytest.raises(WireError):
            decode(data)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert peak < 200_000
    assert time.perf_counter() - began < 1.0


@pytest.mark.alone
def test_a_payload_behind_many_small_fields_costs_no_more_than_its_bytes() -> None:
    body = b"\x08\x01" * 200_000 + pb.Part(data=tensor()).SerializeToString()
    began = time.perf_counter()
    received = decode(_framed(body))
    assert isinstance(received, Part)
    assert received.generation == 1
    assert time.perf_counter() - began < 0.2


def _framed(body: bytes) -> bytes:
    tag = b"\xf2\x01"
    assert encode(part(1)).startswith(tag)
    length, out = len(body), bytearray(tag)
    while length > 0x7F:
        out.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes(out) + bytes([length]) + body


@given(st.binary(max_size=200))
def test_arbitrary_bytes_raise_nothing_but_wire_errors(data: bytes) -> None:
    try:
        decode(data)
    except WireError:
        return


SAMPLES = [
    encode(part(600)),
    encode(part(3)),
    encode(Offer(1, 2, (1, 2, 3), "ab", 4, finite=True, loss=0.5)),
    encode(Report("worker-1", 1, (Numbered(1, "Reduced", "{}", (("value", np.ones(3)),)),))),
    encode(Fragment(100, 0, b"abc")),
    encode(Applied(1, 2, "a", "b")),
]


@given(st.sampled_from(SAMPLES), st.data())
def test_damaged_frames_raise_nothing_but_wire_errors(good: bytes, draw: st.DataObject) -> None:
    damaged = bytearray(good)
    for _ in range(draw.draw(st.integers(1, 4))):
        at = draw.draw(st.integers(0, min(len(damaged), 120)))
        kind = draw.draw(st.sampled_from(["set", "cut", "insert", "end"]))
        if kind == "set" and at < len(damaged):
            damaged[at] = draw.draw(st.integers(0, 255))
        elif kind == "cut":
            del damaged[at : at + draw.draw(st.integers(1, 20))]
        elif kind == "insert":
            damaged[at:at] = draw.draw(st.binary(max_size=8))
        else:
            damaged = damaged[: len(damaged) - draw.draw(st.integers(0, 20))]
    try:
        frame = decode(bytes(damaged))
    except WireError:
        return
    assert encode(frame)


@given(st.integers(0, 8 * 4800 - 1))
def test_a_flipped_payload_bit_never_passes(bit: int) -> None:
    data = bytearray(encode(part(600)))
    at = len(data) - 4800 + bit // 8
    data[at] ^= 1 << (bit % 8)
    with pytest.raises(WireError, match="CRC"):
        decode(bytes(data))


def test_our_own_mistakes_are_no_wire_errors() -> None:
    with pytest.raises((TypeError, ValueError)):
        encode(Identify(-1))
    with pytest.raises((TypeError, ValueError)):
        encode(Applied(1, "2", "", ""))  # type: ignore[arg-type]
    with pytest.raises(KeyError):
        encode(object())  # type: ignore[arg-type]


def test_a_heartbeat_is_two_or_three_bytes() -> None:
    assert len(encode(Heartbeat())) <= 3
    assert IN_PLACE_BYTES_MIN < 8192


def large_part(**changed: Any) -> Part:
    plain = Part(1, 2, 3, "lap", 0, 1, 0, 1000, (1, 2), np.arange(1000.0))
    return replace(plain, **changed)


def test_a_part_that_is_passed_on_as_it_came_keeps_its_bytes() -> None:
    frame = encode(large_part())
    received = decode(frame)
    assert isinstance(received, Part)
    assert encode(replace(received)) is frame


@pytest.mark.parametrize(
    "changed",
    [
        {"generation": 9},
        {"lane": "chain"},
        {"summed": (1, 2, 3)},
        {"summed": ()},
        {"index": 1, "count": 2},
        {"start": 7},
    ],
    ids=lambda changed: next(iter(changed)),
)
def test_a_part_that_is_passed_on_under_another_stamp_is_encoded_anew(changed: dict[str, Any]) -> None:
    received = decode(encode(large_part()))
    assert isinstance(received, Part)
    passed_on = replace(received, **changed)
    assert encode(passed_on) == encode(large_part(**changed))


def test_a_slice_or_a_sum_of_a_received_payload_is_encoded_anew() -> None:
    received = decode(encode(large_part()))
    assert isinstance(received, Part)
    for data in (received.data[:600], received.data[::-1], received.data + 0.0):
        again = decode(encode(replace(received, data=data)))
        assert isinstance(again, Part)
        assert again.data.tobytes() == data.tobytes()


def test_a_payload_that_looks_like_a_frame_is_still_a_payload() -> None:
    inner = encode(large_part())
    looks = np.frombuffer(inner, dtype="<f8", count=len(inner) // 8)
    part = large_part(data=looks, total=looks.size)
    received = decode(pb.Frame.FromString(encode(part)).SerializeToString())
    assert isinstance(received, Part)
    assert encode(received) == encode(part)
