"""What a fuzzer says: frames of every kind, with values that get past the first checks as well as senseless ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, is_dataclass
from typing import Any, get_args, get_type_hints

import numpy as np
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from services.fact_codec import FACT_KINDS
from services.frames import TransportFrame
from services.messages import Array, Message

FRAME_KINDS = (*get_args(Message), *get_args(TransportFrame))
NAMES = ("coordinator", "server", "verifier", "driver", "worker-1", "worker-2", "worker-3", "worker-99", "shard-1")
WORDS = (
    *NAMES, *FACT_KINDS, "chain", "lap", "push", "publish", "value", "state", "finished", "", "{}", "[]", "null", "{",
    '{"step":1}', '{"step":"x"}', '{"step":{}}', '{"worker/1":{"1":2}}', "[" * 5000, "\n", "\x00", "NaN", "1" * 5000,
    "../../etc/passwd", "ckpt-00000001-g1-i1", "d" * 64,
)  # fmt: skip

INTEGERS = st.one_of(st.integers(0, 4), st.sampled_from((2**31, 2**63 - 1)), st.integers(0, 2**63 - 1))
ARRAYS = hnp.arrays(np.float64, st.sampled_from((0, 1, 5, 15, 30)))
Scalars = Mapping[Any, st.SearchStrategy[Any]]
SCALARS: Scalars = {
    int: INTEGERS,
    float: st.floats(),
    str: st.one_of(st.sampled_from(WORDS), st.text(max_size=20)),
    bool: st.booleans(),
    bytes: st.binary(max_size=200),
    Array: ARRAYS,
}


def value_of(hint: Any, scalars: Scalars = SCALARS) -> st.SearchStrategy[Any]:
    """Values of a field with this annotation."""
    if hint in scalars:
        return scalars[hint]
    if is_dataclass(hint):
        return instance_of(hint, scalars)
    arguments = get_args(hint)
    if arguments[-1] is Ellipsis:
        return st.lists(value_of(arguments[0], scalars), max_size=4).map(tuple)
    return st.tuples(*(value_of(argument, scalars) for argument in arguments))


def instance_of(kind: Any, scalars: Scalars = SCALARS) -> st.SearchStrategy[Any]:
    """Messages or frames of this kind."""
    hints = get_type_hints(kind)
    return st.builds(kind, **{item.name: value_of(hints[item.name], scalars) for item in fields(kind)})


MESSAGES = st.one_of([instance_of(kind) for kind in get_args(Message)])
FRAMES = st.one_of([instance_of(kind) for kind in FRAME_KINDS])
