"""What every fault has in common: strict fields, a trigger, and the engines that can do it."""

from __future__ import annotations

import difflib
from collections.abc import Sequence
from typing import Annotated, ClassVar

from pydantic import AfterValidator, BaseModel, ConfigDict, Discriminator, Field, Tag
from pydantic_core import PydanticCustomError

from services.events import COORDINATOR, SERVER, VERIFIER

EVERYONE = "everyone"  # as a target: every worker or shard, the coordinator and the server, in one instant
SINGLE_ROLES = (COORDINATOR, SERVER, VERIFIER)
PROCESS_ENGINES = frozenset({"sim", "local", "containers", "lan"})
SIMULATOR = frozenset({"sim"})
PROXIED = frozenset({"local", "containers", "lan"})
NONE: frozenset[str] = frozenset()


class Strict(BaseModel):
    """A frozen value that refuses unknown keys, and a wrong type instead of converting it."""

    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


def nearest(word: str, known: Sequence[str]) -> str:
    """ "; did you mean 'x'?" when a known word is close, else the known words."""
    close = difflib.get_close_matches(word, known, n=1, cutoff=0.6)
    return f"; did you mean {close[0]!r}?" if close else f"; known: {', '.join(known)}"


def is_worker(name: str) -> bool:
    """Whether `name` is worker-<number from 1>."""
    kind, _, number = name.partition("-")
    return kind == "worker" and number.isascii() and number.isdigit() and not number.startswith("0")


def is_shard(name: str) -> bool:
    """Whether `name` is shard-<number from 1>."""
    return name.startswith("shard-") and is_worker(name.replace("shard-", "worker-", 1))


def is_member(name: str) -> bool:
    """Whether `name` is a worker's or a shard's."""
    return is_worker(name) or is_shard(name)


def _role(name: str) -> str:
    if is_member(name) or name in SINGLE_ROLES:
        return name
    raise PydanticCustomError("role", "{text}", {"text": f"unknown role {name!r}{_role_hint(name, SINGLE_ROLES)}"})


def _target(name: str) -> str:
    if is_member(name) or name in (*SINGLE_ROLES, EVERYONE):
        return name
    hint = _role_hint(name, (*SINGLE_ROLES, EVERYONE))
    raise PydanticCustomError("role", "{text}", {"text": f"unknown role {name!r}{hint}"})


def _worker(name: str) -> str:
    if is_worker(name):
        return name
    raise PydanticCustomError("role", "{text}", {"text": f"{name!r} is no worker; expected worker-<number from 1>"})


def _role_hint(name: str, singles: tuple[str, ...]) -> str:
    digits = "".join(filter(str.isdigit, name)).lstrip("0")
    members = [f"worker-{digits or 1}", f"shard-{digits or 1}"]
    close = difflib.get_close_matches(name, [*singles, *members], n=1, cutoff=0.6)
    known = f"worker-<number>, shard-<number>, {', '.join(singles)}"
    return f"; did you mean {close[0]!r}?" if close else f"; known: {known}"


RoleName = Annotated[str, AfterValidator(_role)]
TargetName = Annotated[str, AfterValidator(_target)]
WorkerName = Annotated[str, AfterValidator(_worker)]
Step = Annotated[int, Field(ge=1)]
Milliseconds = Annotated[float, Field(gt=0, allow_inf_nan=False)]
Probability = Annotated[float, Field(gt=0, le=1, allow_inf_nan=False)]


class PhaseTrigger(Strict):
    """When `role` stands at `phase` of `step`."""

    step: Step
    """Step number, from 1."""
    phase: str
    """A phase of that role; `gradstorm scenarios` and ARCHITECTURE.md list them."""
    role: RoleName | None = None
    """Whose phase; left out, the fault's own target."""
    chunk: Annotated[int, Field(ge=0)] = 0
    """Within `reduce`: after so many chunks of the role's own value are sent. Of a shard: the micro-batch, from 0."""


class TimeTrigger(Strict):
    """So many milliseconds after the first step opened. Never the same point twice, so never `fixed`."""

    at_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)]
    """Milliseconds of the driver's clock after the first step opened."""


def _trigger_kind(value: object) -> str:
    timed = "at_ms" in value if isinstance(value, dict) else isinstance(value, TimeTrigger)
    return "(time)" if timed else "(phase)"


Trigger = Annotated[
    Annotated[PhaseTrigger, Tag("(phase)")] | Annotated[TimeTrigger, Tag("(time)")], Discriminator(_trigger_kind)
]


class FaultBase(Strict):
    """Common to all faults. The docstring of a kind is its line in the list of faults."""

    kind: str
    able: ClassVar[frozenset[str]] = PROCESS_ENGINES
    able_with_toxiproxy: ClassVar[frozenset[str]] = NONE

    @property
    def label(self) -> str:
        """What it is aimed at, for people and for the fault's name."""
        raise NotImplementedError

    @property
    def timed(self) -> bool:
        """Whether a clock decides when it begins or ends, so that two runs may differ."""
        return isinstance(getattr(self, "trigger", None), TimeTrigger)

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        """When it begins, the role filled in."""
        raise NotImplementedError

    @property
    def ends(self) -> PhaseTrigger | None:
        """The phase that ends it, when one does."""
        return None


def with_role(trigger: PhaseTrigger | TimeTrigger, role: str) -> PhaseTrigger | TimeTrigger:
    """The trigger with `role` filled in where it names none."""
    if isinstance(trigger, PhaseTrigger) and trigger.role is None:
        return trigger.model_copy(update={"role": role})
    return trigger
