"""From a schedule that violates an invariant to a small one that still does.

    small = shrink(scenario, violates)          # violates(scenario) runs it, in the simulator, and looks at the verdict

Faults go first (delta debugging: A. Zeller and R. Hildebrandt, "Simplifying and Isolating Failure-Inducing Input",
2002), then workers, steps, and what is left of the faults and of the setup; round and round until nothing more can
go. Every candidate makes sense (`chaos.checks`), none is tried twice, and the number of tries is bounded.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

from chaos.checks import problems
from chaos.expect import Expect
from chaos.fault_kinds.base import is_worker
from chaos.fault_kinds.links import LinkFault
from chaos.faults import AnyFault
from chaos.scenario import Scenario
from chaos.training_setup import TrainingSetup
from services.events import worker_id
from training.errors import ConfigurationError

Predicate = Callable[[Scenario], bool]

_STEP_KEYS = ("step", "relaunch_at", "return_at")


@dataclass(frozen=True, slots=True)
class Shrunk:
    """The smallest scenario found. `exhausted`: the tries ran out, so it may not be minimal."""

    scenario: Scenario
    tries: int
    exhausted: bool


def shrink(scenario: Scenario, violates: Predicate, tries_max: int = 300) -> Shrunk:
    """Raises ConfigurationError when the scenario itself does not violate anything."""
    search = _Search(violates, tries_max)
    bare = scenario.model_copy(update={"expect": Expect(condition=scenario.expect.condition), "clean_steps": 1})
    if search.holds(bare):
        best = bare  # its promises are about the whole schedule; without them fewer faults can go wrong only for real
    elif search.holds(scenario):
        best = scenario
    else:
        raise ConfigurationError(f"scenario {scenario.name} violates nothing, so there is nothing to make smaller")
    best = search.fewer_faults(best)
    while True:
        smaller = search.first(candidates(best))
        if smaller is None:
            return Shrunk(best, search.tries, search.exhausted)
        best = search.fewer_faults(smaller)


class _Search:
    """Asks the predicate, at most `tries_max` times, never twice about the same scenario."""

    def __init__(self, violates: Predicate, tries_max: int) -> None:
        self._violates = violates
        self._tries_max = tries_max
        self._known: dict[str, bool] = {}
        self.tries = 0
        self.exhausted = False

    def holds(self, scenario: Scenario) -> bool:
        """Whether it makes sense and still violates."""
        key = scenario.model_dump_json()
        if key not in self._known:
            if problems(scenario):
                return False
            if self.tries >= self._tries_max:
                self.exhausted = True
                return False
            self.tries += 1
            self._known[key] = self._violates(scenario)
        return self._known[key]

    def first(self, options: Iterator[Scenario]) -> Scenario | None:
        """The first that holds."""
        return next((option for option in options if self.holds(option)), None)

    def fewer_faults(self, scenario: Scenario) -> Scenario:
        """ddmin: leave out ever smaller parts of the schedule, as long as that works."""
        faults = list(scenario.faults)
        parts = 2
        while faults:
            size = max(1, len(faults) // parts)
            options = [faults[:at] + faults[at + size :] for at in range(0, len(faults), size)]
            shorter = next((option for option in options if self.holds(with_faults(scenario, option))), None)
            if shorter is not None:
                faults, parts = shorter, max(2, parts - 1)
            elif size == 1:
                break
            else:
                parts = min(len(faults), 2 * parts)
        return with_faults(scenario, faults)


def with_faults(scenario: Scenario, faults: Sequence[AnyFault]) -> Scenario:
    """The scenario with this schedule, and `fixed` as the schedule allows."""
    free = any(fault.timed or isinstance(fault, LinkFault) for fault in faults)
    return scenario.model_copy(update={"faults": list(faults), "fixed": scenario.fixed if free else True})


def candidates(scenario: Scenario) -> Iterator[Scenario]:
    """Scenarios that are one move smaller, the boldest first."""
    yield from _fewer_workers(scenario)
    yield from _fewer_steps(scenario)
    yield from _earlier(scenario)
    yield from _plainer_faults(scenario)
    yield from _plainer_setup(scenario)


def _fewer_workers(scenario: Scenario) -> Iterator[Scenario]:
    """First with the names as they are, then with the first cast renumbered so that those in the schedule stay."""
    workers = scenario.training.workers
    named = sorted({worker for fault in scenario.faults for worker in _named_workers(fault)})
    cast, added = [w for w in named if w <= workers], [w for w in named if w > workers]
    for count in range(1, workers):
        fewer = _with_training(scenario, workers=count)
        yield fewer
        if len(cast) <= count:
            names = {old: new for new, old in enumerate(cast, start=1)}
            names |= {old: new for new, old in enumerate(added, start=count + 1)}
            yield with_faults(fewer, [_renamed(fault, names) for fault in scenario.faults])


def _fewer_steps(scenario: Scenario) -> Iterator[Scenario]:
    """Halfway to nothing first from below: 1, then ever closer to what it is."""
    steps = scenario.training.steps
    low = 1
    while low < steps:
        yield _with_training(scenario, steps=low)
        low += max(1, (steps - low) // 2)


def _earlier(scenario: Scenario) -> Iterator[Scenario]:
    """The whole schedule moved towards the first step."""
    starts = [step for fault in scenario.faults for step in _steps_in(fault.model_dump())]
    by = min(starts, default=1) - 1
    while by >= 1:
        yield with_faults(scenario, [_moved(fault, -by) for fault in scenario.faults])
        by //= 2


def _plainer_faults(scenario: Scenario) -> Iterator[Scenario]:
    """Without a relaunch, without a chunk, on fewer links."""
    for index, fault in enumerate(scenario.faults):
        for plainer in _plainer(fault):
            yield with_faults(scenario, [*scenario.faults[:index], plainer, *scenario.faults[index + 1 :]])


def _plainer(fault: AnyFault) -> Iterator[AnyFault]:
    if getattr(fault, "relaunch_at", None) is not None:
        yield fault.model_copy(update={"relaunch_at": None})
    trigger = getattr(fault, "trigger", None)
    if getattr(trigger, "chunk", 0) and trigger is not None:
        yield fault.model_copy(update={"trigger": trigger.model_copy(update={"chunk": 0})})
    if isinstance(fault, LinkFault):
        yield from _fewer_links(fault)


def _fewer_links(fault: AnyFault) -> Iterator[AnyFault]:
    """Without one of its pairs, or without one role of its groups."""
    assert isinstance(fault, LinkFault)
    if fault.pairs is not None and len(fault.pairs) > 1:
        for pair in fault.pairs:
            yield fault.model_copy(update={"pairs": [other for other in fault.pairs if other != pair]})
    for gone in [role for group in fault.groups or [] for role in group]:
        left = [[role for role in group if role != gone] for group in fault.groups or []]
        left = [group for group in left if group]
        if len(left) > 1:
            yield fault.model_copy(update={"groups": left})


def _plainer_setup(scenario: Scenario) -> Iterator[Scenario]:
    """One part of the training setup as by default."""
    plain = TrainingSetup()
    for name in ("dataset", "model", "optimizer", "batch", "chunk_elements", "checkpoint_every"):
        if getattr(scenario.training, name) != getattr(plain, name):
            yield _with_training(scenario, **{name: getattr(plain, name)})


# ---------------------------------------------------------------- faults, changed as plain data


def _with_training(scenario: Scenario, **changes: Any) -> Scenario:
    return scenario.model_copy(update={"training": scenario.training.model_copy(update=changes)})


def _named_workers(fault: AnyFault) -> set[int]:
    return {worker_id(text) for text in _texts(fault.model_dump()) if is_worker(text)}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, dict | list):
        for item in value.values() if isinstance(value, dict) else value:
            yield from _texts(item)


def _renamed(fault: AnyFault, names: dict[int, int]) -> AnyFault:
    def change(value: Any) -> Any:
        if isinstance(value, str) and is_worker(value):
            return f"worker-{names[worker_id(value)]}"
        if isinstance(value, dict):
            return {key: change(item) for key, item in value.items()}
        return [change(item) for item in value] if isinstance(value, list) else value

    return type(fault).model_validate(change(fault.model_dump()))


def _moved(fault: AnyFault, by: int) -> AnyFault:
    def change(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        return {
            key: item + by if key in _STEP_KEYS and item is not None else change(item) for key, item in value.items()
        }

    return type(fault).model_validate(change(fault.model_dump()))


def _steps_in(value: Any) -> Iterator[int]:
    if isinstance(value, dict):
        for key, item in value.items():
            if key in _STEP_KEYS and item is not None:
                yield item
            else:
                yield from _steps_in(item)
