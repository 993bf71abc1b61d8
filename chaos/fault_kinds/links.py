"""Faults of the network between roles, each on a set of directed links.

`pairs` names links one by one; `groups` cuts the roles into parties and takes every link between two of them. With
`one_way` only the direction from the first to the second (from an earlier group to a later one) is meant.
"""

from __future__ import annotations

from typing import Annotated, ClassVar, Literal

from pydantic import Field, model_validator
from pydantic_core import PydanticCustomError

from chaos.fault_kinds.base import (
    PROXIED,
    SIMULATOR,
    FaultBase,
    Milliseconds,
    PhaseTrigger,
    Probability,
    RoleName,
    Step,
    TimeTrigger,
    Trigger,
    is_worker,
)
from services.events import COORDINATOR, worker_id

Settings = dict[str, str | int | float]
Pair = Annotated[list[RoleName], Field(min_length=2, max_length=2)]
Group = Annotated[list[RoleName], Field(min_length=1)]


class LinkFault(FaultBase):
    """What all faults of links share."""

    able: ClassVar[frozenset[str]] = SIMULATOR
    able_with_toxiproxy: ClassVar[frozenset[str]] = PROXIED

    pairs: Annotated[list[Pair], Field(min_length=1)] | None = None
    """Links one by one: [[worker-1, worker-2], …]."""
    groups: Annotated[list[Group], Field(min_length=2)] | None = None
    """Parties: every link between two of them. Roles that are in no group are left alone."""
    one_way: bool = False
    """Only from the first to the second."""
    trigger: Trigger
    """When it begins; the role must be named."""

    @model_validator(mode="after")
    def _links_are_named_once(self) -> LinkFault:
        if (self.pairs is None) == (self.groups is None):
            raise PydanticCustomError("links", "name the links by either pairs or groups")
        parties = [[role for group in self.groups or [] for role in group]]
        for roles in (self.pairs or []) + parties:
            twice = sorted({role for role in roles if roles.count(role) > 1})
            if twice:
                raise PydanticCustomError("links", "{role} is on both sides", {"role": twice[0]})
        return self

    @property
    def links(self) -> tuple[tuple[str, str], ...]:
        """The directed links (source, target), ascending, each once."""
        one_way = [(pair[0], pair[1]) for pair in self.pairs or []]
        groups = self.groups or []
        one_way += [
            (source, target)
            for at, group in enumerate(groups)
            for later in groups[at + 1 :]
            for source in group
            for target in later
        ]
        back = [] if self.one_way else [(target, source) for source, target in one_way]
        return tuple(sorted({*one_way, *back}))

    @property
    def label(self) -> str:
        arrow = " > " if self.one_way else " | "
        if self.groups is not None:
            return arrow.join("+".join(group) for group in self.groups)
        return ", ".join(arrow.join(pair) for pair in self.pairs or [])

    @property
    def starts(self) -> PhaseTrigger | TimeTrigger:
        return self.trigger

    @property
    def settings(self) -> Settings:
        """Its figures for the injector, units in the names."""
        return {}

    @property
    def injected_kind(self) -> str:
        """The kind that the injector is asked for."""
        return self.kind


class LastingLinkFault(LinkFault):
    """A fault of links that is undone after a time or at a phase."""

    for_ms: Milliseconds | None = None
    """Undone after this long."""
    until: PhaseTrigger | None = None
    """Undone when this role reaches this phase; the role must be named."""

    @model_validator(mode="after")
    def _has_one_end(self) -> LastingLinkFault:
        ends = {name: getattr(self, name, None) for name in ("for_ms", "until", "return_at")}
        known = [name for name in ends if name in type(self).model_fields]
        if sum(value is not None for value in ends.values()) != 1:
            raise PydanticCustomError("undo", "say when it is undone by one of {names}", {"names": ", ".join(known)})
        return self

    @property
    def timed(self) -> bool:
        return self.for_ms is not None or isinstance(self.trigger, TimeTrigger)

    @property
    def ends(self) -> PhaseTrigger | None:
        return self.until


class Latency(LastingLinkFault):
    """Every message takes longer, by a fixed time."""

    kind: Literal["latency"]
    delay_ms: Milliseconds
    """Added to every message."""

    @property
    def settings(self) -> Settings:
        return {"delay_ms": self.delay_ms}


class Jitter(LastingLinkFault):
    """Every message takes longer, by a time drawn anew; the order within a link stays."""

    kind: Literal["jitter"]
    delay_ms: Annotated[float, Field(ge=0, allow_inf_nan=False)] = 0.0
    """The least that is added."""
    jitter_ms: Milliseconds
    """Up to this much more, drawn from the run's seed."""

    @property
    def settings(self) -> Settings:
        return {"delay_ms": self.delay_ms, "jitter_ms": self.jitter_ms}


class Bandwidth(LastingLinkFault):
    """The links carry only so many bytes a second."""

    kind: Literal["bandwidth"]
    kib_per_s: Annotated[float, Field(gt=0, allow_inf_nan=False)]
    """KiB per second, above 0."""

    @property
    def settings(self) -> Settings:
        return {"kib_per_s": self.kib_per_s}


class Drop(LastingLinkFault):
    """A message is lost, and the link with it: it breaks and comes back, as a broken connection does."""

    able_with_toxiproxy: ClassVar[frozenset[str]] = frozenset()
    kind: Literal["drop"]
    probability: Probability
    """Of each message, drawn from the run's seed."""

    @property
    def settings(self) -> Settings:
        return {"probability": self.probability}


class Duplicate(LastingLinkFault):
    """A message arrives twice."""

    able_with_toxiproxy: ClassVar[frozenset[str]] = frozenset()
    kind: Literal["duplicate"]
    probability: Probability
    """Of each message, drawn from the run's seed."""

    @property
    def settings(self) -> Settings:
        return {"probability": self.probability}


class Reorder(LastingLinkFault):
    """A message is overtaken by those behind it."""

    able_with_toxiproxy: ClassVar[frozenset[str]] = frozenset()
    kind: Literal["reorder"]
    probability: Probability
    """Of each message, drawn from the run's seed."""
    delay_ms: Milliseconds = 5.0
    """How long it is held back."""

    @property
    def settings(self) -> Settings:
        return {"probability": self.probability, "delay_ms": self.delay_ms}


class CorruptPayload(LastingLinkFault):
    """A bit of an array on the wire flips."""

    able_with_toxiproxy: ClassVar[frozenset[str]] = frozenset()
    kind: Literal["corrupt_payload"]
    probability: Probability
    """Of each message that carries an array, drawn from the run's seed."""

    @property
    def settings(self) -> Settings:
        return {"probability": self.probability}


class Cut(LastingLinkFault):
    """What `partition` and `disconnect` share."""

    return_at: Step | None = None
    """Undone once the workers whose words no longer reach the coordinator are out; they are back from this step on."""

    @property
    def cut_off(self) -> tuple[str, ...]:
        """Workers that the coordinator does not hear any more, ascending."""
        cut = {source for source, target in self.links if target == COORDINATOR and is_worker(source)}
        return tuple(sorted(cut, key=worker_id))


class Partition(Cut):
    """Nothing gets through, and nobody is told: a blackhole."""

    kind: Literal["partition"]


class Disconnect(Cut):
    """The roles of the first group are taken off the network, the driver's and the verifier's links with it."""

    able_with_toxiproxy: ClassVar[frozenset[str]] = frozenset({"containers"})
    kind: Literal["disconnect"]

    @model_validator(mode="after")
    def _has_groups(self) -> Disconnect:
        if self.groups is None or len(self.groups) != 2 or self.one_way:
            raise PydanticCustomError("links", "give two groups: who is taken off the network, and everybody else")
        return self

    @property
    def settings(self) -> Settings:
        return {"off": ",".join((self.groups or [[]])[0])}


class Reset(LinkFault):
    """The connections break once and may come back at once."""

    kind: Literal["reset"]


class Flap(LinkFault):
    """The links go down and up again, several times."""

    kind: Literal["flap"]
    down_ms: Milliseconds
    """Down for this long each time."""
    up_ms: Milliseconds
    """Up for this long in between."""
    cycles: Annotated[int, Field(ge=1, le=1000)]
    """How many times it goes down."""

    @property
    def timed(self) -> bool:
        return True

    @property
    def injected_kind(self) -> str:
        return "partition"
