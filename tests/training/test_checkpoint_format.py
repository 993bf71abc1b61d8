"""Every damage to a checkpoint's bytes is found and named; what comes back is what went in, bit by bit."""

from __future__ import annotations

import json
import random
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest

from tests.counted import COUNTED, RecordProperty
from tests.training.helpers import DATASET, MODEL, make_state, same
from training.checkpoint import CheckpointState, checkpoint_name, decode, encode, parse_name
from training.checkpoint_format import MANIFEST, TENSORS, sealed_json
from training.config import ModelConfig
from training.errors import CheckpointError

WIDE = ModelConfig("mlp", 16, 4, 24)  # 508 parameters: 8 KiB of tensors


def flipped(content: bytes, bit: int) -> bytes:
    changed = bytearray(content)
    changed[bit // 8] ^= 1 << bit % 8
    return bytes(changed)


def refused(files: dict[str, bytes], named: str) -> None:
    with pytest.raises(CheckpointError, match=named.replace(".", r"\.")):
        decode(files)


@pytest.mark.parametrize("model", [MODEL, WIDE])
def test_round_trip_is_bitwise_and_deterministic(model: ModelConfig) -> None:
    state = make_state(7, 3, model)
    odd = np.array([0x7FF8000000000001, 0xFFF0000000000000, 0x8000000000000000, 1], dtype=np.uint64).view(np.float64)
    state.parameters[:4] = odd  # a NaN with a payload, -inf, -0.0 and the smallest subnormal
    files = encode(state, 2)
    assert list(files) == [TENSORS, MANIFEST]
    assert files == encode(state, 2)
    assert same(decode(files), state)
    assert encode(decode(files), 2) == files


def test_kind_21_nothing_in_it_is_a_pickle() -> None:
    files = encode(make_state(1), 1)
    assert json.loads(files[MANIFEST])["dataset_sha256"] == DATASET
    header_size = int.from_bytes(files[TENSORS][:8], "little")
    header = json.loads(files[TENSORS][8 : 8 + header_size])
    assert {name: header[name]["dtype"] for name in header} == {"parameters": "F64", "velocity": "F64"}


def test_kind_06_every_flipped_bit_of_the_manifest_is_found(record_property: RecordProperty) -> None:
    files = encode(make_state(2), 1)
    record_property(COUNTED, f"checkpoint: every one of {8 * len(files[MANIFEST])} bits of the manifest, all detected")
    for bit in range(8 * len(files[MANIFEST])):
        refused({**files, MANIFEST: flipped(files[MANIFEST], bit)}, MANIFEST)


def test_kind_06_a_thousand_flipped_bits_of_the_tensors_are_found() -> None:
    files = encode(make_state(2, model=WIDE), 1)
    for bit in random.Random(6).sample(range(8 * len(files[TENSORS])), 1000):
        refused({**files, TENSORS: flipped(files[TENSORS], bit)}, TENSORS)


@pytest.mark.parametrize("file", [TENSORS, MANIFEST])
def test_kind_06_truncated_zero_filled_or_longer_files_are_found(file: str, record_property: RecordProperty) -> None:
    files = encode(make_state(2, model=WIDE), 1)
    content = files[file]
    lengths = {*range(0, len(content), 512), len(content) - 1}
    record_property(COUNTED, f"checkpoint: {file} cut or zero-filled from {len(lengths)} places on, all detected")
    for length in lengths:
        refused({**files, file: content[:length]}, file)
        refused({**files, file: content[:length].ljust(len(content), b"\0")}, file)
    refused({**files, file: content + b"\0"}, file)
    refused({**files, file: content + b"\n"}, file)
    refused({name: other for name, other in files.items() if name != file}, f"{file} is missing")


def test_kind_06_files_swapped_between_steps_are_found() -> None:
    first, second = encode(make_state(2), 1), encode(make_state(3), 1)
    refused({TENSORS: first[TENSORS], MANIFEST: second[MANIFEST]}, TENSORS)
    refused({TENSORS: second[TENSORS], MANIFEST: first[MANIFEST]}, TENSORS)
    refused({TENSORS: first[MANIFEST], MANIFEST: first[TENSORS]}, MANIFEST)


def resealed(change: Callable[[dict[str, object]], object]) -> dict[str, bytes]:
    """A checkpoint whose manifest was changed and sealed again, as a wrong writer would."""
    files = encode(make_state(2), 1)
    body = json.loads(files[MANIFEST])
    del body["sha256"]
    change(body)
    return {**files, MANIFEST: sealed_json(body)}


def test_a_sealed_manifest_that_says_nonsense_is_refused() -> None:
    assert same(decode(resealed(lambda body: None)), make_state(2))
    refused(resealed(lambda body: body.update(format=2)), "format 2")
    refused(resealed(lambda body: body.update(files={})), MANIFEST)
    refused(resealed(lambda body: body.update(files=7)), MANIFEST)
    refused(resealed(lambda body: body.update(model={"kind": "cnn"})), MANIFEST)
    refused(resealed(lambda body: body.update(sampler=[])), MANIFEST)
    refused(resealed(lambda body: body.update(step=-1)), "step -1")
    refused(resealed(lambda body: body.pop("generation")), "generation")
    model = {"kind": "softmax", "feature_count": 9, "class_count": 4, "hidden_count": 0}
    refused(resealed(lambda body: body.update(model=model)), "parameters are float64")
    for junk in (b"[]", b"7", b"null", b"{", b"[" * 100_000, b'{"sha256":null}', b"\xff"):
        refused({**encode(make_state(2), 1), MANIFEST: junk}, MANIFEST)


def test_a_state_that_does_not_fit_its_model_is_refused() -> None:
    state = make_state(1)
    short, single = state.parameters[:-1], state.parameters.astype(np.float32)
    for change in ({"parameters": short}, {"velocity": short}, {"velocity": single}, {"step": -1}, {"generation": -1}):
        with pytest.raises(CheckpointError, match="checkpoint"):
            replace(state, **change)
    assert isinstance(replace(state, step=0), CheckpointState)


def test_names_are_parsed_back_and_strangers_are_not() -> None:
    name = checkpoint_name(12, 3, 1)
    assert name == "ckpt-00000012-g3-i1"
    key = parse_name(name)
    assert key is not None
    assert (key.step, key.generation, key.incarnation) == (12, 3, 1)
    assert parse_name(checkpoint_name(123456789, 10, 11)) is not None
    for stranger in (
        "tmp-ckpt-00000012-g3-i1",
        "LATEST",
        "ckpt-12-g3-i1",
        "ckpt-00000012-g03-i1",
        "ckpt-000000012-g3-i1",
    ):
        assert parse_name(stranger) is None
    later_generation, later_step = parse_name("ckpt-00000005-g4-i1"), parse_name("ckpt-00000009-g3-i1")
    assert later_generation is not None
    assert later_step is not None
    assert later_generation > later_step  # after a rollback the lower step is the newer one
