"""The state of a PCG64 generator as a value, so that it can be saved, compared and carried on."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from training.errors import DataError


@dataclass(frozen=True, slots=True)
class GeneratorState:
    """A PCG64 state. `state` and `increment` are 128-bit integers, hence decimal strings in JSON."""

    state: int
    increment: int
    has_uint32: int
    uinteger: int

    def to_json(self) -> dict[str, Any]:
        """A dict that `json.dumps` takes."""
        return {
            "bit_generator": "PCG64",
            "state": str(self.state),
            "increment": str(self.increment),
            "has_uint32": self.has_uint32,
            "uinteger": self.uinteger,
        }

    @classmethod
    def from_json(cls, value: Mapping[str, Any]) -> "GeneratorState":
        """Inverse of `to_json`; KeyError, TypeError or ValueError on anything else."""
        if value["bit_generator"] != "PCG64":
            raise ValueError(f"generator {value['bit_generator']!r} is not PCG64")
        return cls(
            int(value["state"]),
            int(value["increment"]),
            whole_number(value["has_uint32"]),
            whole_number(value["uinteger"]),
        )


def generator_state(generator: np.random.Generator) -> GeneratorState:
    """Where a PCG64 generator stands."""
    raw: Any = generator.bit_generator.state
    return GeneratorState(
        int(raw["state"]["state"]), int(raw["state"]["inc"]), int(raw["has_uint32"]), int(raw["uinteger"])
    )


def set_generator(generator: np.random.Generator, state: GeneratorState) -> None:
    """Put a PCG64 generator where `state` was taken. Raises DataError when there is no such state."""
    try:
        generator.bit_generator.state = {
            "bit_generator": "PCG64",
            "state": {"state": state.state, "inc": state.increment},
            "has_uint32": state.has_uint32,
            "uinteger": state.uinteger,
        }
    except (OverflowError, ValueError) as error:
        raise DataError(f"damaged sampler state: the generator refuses it ({error}); use another checkpoint") from error


def whole_number(value: object) -> int:
    """`value` if it is one; TypeError otherwise."""
    if not isinstance(value, int) or isinstance(value, bool):
        raise TypeError(f"{value!r} is not a whole number")
    return value
