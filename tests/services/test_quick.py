"""The quicker `__init__` of frozen dataclasses does all that theirs does, and they stay frozen."""

from __future__ import annotations

from dataclasses import FrozenInstanceError, dataclass, field, fields, replace
from typing import Any, get_args

import pytest

from services.events import Effect, Event
from services.messages import Message
from services.quick import quicken
from services.records import Fact


@dataclass(frozen=True, slots=True)
class Plain:
    number: int
    word: str = "x"


@dataclass(frozen=True, slots=True)
class Quick:
    number: int
    word: str = "x"


@dataclass(frozen=True, slots=True)
class Full:
    numbers: list[int] = field(default_factory=list)


quicken(Quick, Full)


def test_it_takes_what_the_plain_one_takes_and_refuses_what_that_refuses() -> None:
    for arguments, named in (((1,), {}), ((1, "y"), {}), ((), {"word": "z", "number": 2})):
        plain, quick = Plain(*arguments, **named), Quick(*arguments, **named)  # type: ignore[arg-type]
        assert (quick.number, quick.word) == (plain.number, plain.word)
    make: Any = Quick
    for wrong in ((), (1, "y", 3)):
        with pytest.raises(TypeError):
            make(*wrong)
    with pytest.raises(TypeError):
        make(number=1, other=2)


def test_nothing_else_about_the_class_changes() -> None:
    one: Any = Quick(1)
    with pytest.raises(FrozenInstanceError):
        one.number = 2
    assert one == Quick(1) != Quick(2)
    assert hash(one) == hash(Quick(1))
    assert repr(one) == "Quick(number=1, word='x')"
    assert replace(one, word="y") == Quick(1, "y")
    assert (Full().numbers, Full().numbers is Full().numbers) == ([], False)


def test_all_that_roles_exchange_is_frozen_and_keeps_its_fields_apart() -> None:
    for kind in (*get_args(Event), *get_args(Effect), *get_args(Message), *get_args(Fact)):
        names = [item.name for item in fields(kind)]
        made: Any = kind(*range(len(names)))
        assert [getattr(made, name) for name in names] == list(range(len(names))), kind
        for name in names:
            with pytest.raises(FrozenInstanceError):
                setattr(made, name, None)
