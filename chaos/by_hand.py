"""The driver of a testbed that stands: no schedule, but faults that a person puts on and takes off while it trains.

    driver = HandDriver(scenario, "ring", pace_ms=500.0)
    actions = driver.handle(now_ms, event)               # as every driver
    name, actions = driver.inject(now_ms, fault)         # begins at once; its witness comes as with a scheduled one
    actions = driver.heal(now_ms)                        # everything is taken off, and who is dead is started again

It differs from the driver of a schedule in three ways. Nothing aborts the run: a testbed that stands still because a
person cut a link shall wait for that person; only the loss of the coordinator by itself ends it. It never tells
`Healed`: a person may go on. And it sets the pace: the coordinator stands at `opened` of every step for `pace_ms`, so
that a testbed that stands for hours costs little; `rest` lets it stand there until `go_on`.
"""

from __future__ import annotations

from chaos.actions import (
    AbortRun,
    Action,
    ArmHold,
    DriverEvent,
    DriverSetTimer,
    DriverTimer,
    Launch,
    ReleaseHold,
    RoleStood,
)
from chaos.acts.add import AddAct
from chaos.acts.base import Act
from chaos.acts.slow import PauseAct
from chaos.acts.table import act_for
from chaos.driver import WATCHDOG, Driver
from chaos.fault_kinds.roles import AddWorker
from chaos.faults import AnyFault, fault_names
from chaos.scenario import Scenario
from services.any_config import AnyStrategy
from services.events import COORDINATOR, VERIFIER
from services.host import Hold
from services.records import Fact, Opened

_PACE = "pace"


class HandDriver(Driver):
    """See the module's docstring."""

    def __init__(self, scenario: Scenario, strategy: AnyStrategy, pace_ms: float) -> None:
        super().__init__(scenario, strategy)
        self._pace_ms = pace_ms
        self._stands_at = ""  # the hold of the pace at which the coordinator stands
        self._paced = 0  # the step whose hold was armed last
        self._resting = False
        self._injected = 0
        self._coming: set[str] = set()  # started by `heal`, and not heard of yet

    @property
    def absent(self) -> tuple[str, ...]:
        """Who is of the testbed and not there: dead, or on its way."""
        return tuple(role for role in self._first_cast if role not in self._board.running)

    # ------------------------------------------------------------ what a person does

    def inject(self, now_ms: float, fault: AnyFault) -> tuple[str, list[Action]]:
        """Its name, and what makes it begin now."""
        self._board.now_ms = max(now_ms, self._board.now_ms)
        self._injected += 1
        (name,) = fault_names([fault])
        name = f"{self._injected}-{name.partition('-')[2]}"
        if isinstance(fault, AddWorker):
            act: Act = _AddNow(name, fault, self._board)
            self._first_cast += (fault.target,)  # it is one of them now: `heal` starts it again
            self._coming.add(fault.target)
        else:
            act = act_for(name, fault, self._board)
        self._acts.append(act)
        return act.name, [*act.arm(), *act.strike(None)]

    def heal(self, now_ms: float) -> list[Action]:
        """Take off what is on, and start whom faults have left dead."""
        self._board.now_ms = max(now_ms, self._board.now_ms)
        actions = [action for act in self._unsettled() for action in _taken_off(act)]
        coming = self._coming | {action.role for action in actions if isinstance(action, Launch)}
        dead = [role for role in self.absent if role not in coming and not self._comes_back(role)]
        self._coming.update(dead)
        return actions + [Launch(role) for role in dead]

    def rest(self) -> list[Action]:
        """Open no further step until `go_on`."""
        self._resting = True
        return []

    def go_on(self) -> list[Action]:
        """Open steps again."""
        self._resting = False
        return self._release_pace()

    def end(self, reason: str) -> list[Action]:
        """Take everything off, and let the run end; what exits now was meant to."""
        self._finished = True
        closed = [action for act in self._unsettled() for action in act.close(reason)]
        return [*closed, *self._release_pace(), AbortRun(reason)]

    def state_of(self, fault: str) -> str:
        """ "struck", "acted", "undone", … of a fault that was injected."""
        return next((act.stage.value for act in self._acts if act.name == fault), "")

    # ------------------------------------------------------------ where it differs

    def _handle(self, event: DriverEvent) -> list[Action]:
        match event:
            case RoleStood(role, hold) if role == COORDINATOR and hold.startswith(f"{_PACE}."):
                self._stands_at = hold
                return [DriverSetTimer(_PACE, self._pace_ms)]
            case DriverTimer(name) if name == _PACE:
                return [] if self._resting else self._release_pace()
        return super()._handle(event)

    def _launched(self, role: str, launch: int) -> list[Action]:
        self._coming.discard(role)
        if role == COORDINATOR:
            self._stands_at, self._paced = "", 0
        return super()._launched(role, launch)

    def _exited(self, role: str, launch: int, exit_code: int) -> list[Action]:
        self._coming.discard(role)
        if role in (COORDINATOR, VERIFIER) or role in self._board.killed_by:
            return super()._exited(role, launch, exit_code)
        if self._board.running.get(role) == launch:
            del self._board.running[role]
        return []

    def _observed(self, fact: Fact) -> list[Action]:
        actions = super()._observed(fact)
        if isinstance(fact, Opened) and self._paced <= fact.step:
            self._paced = fact.step + 1
            name = f"{_PACE}.{self._paced}"
            actions.append(ArmHold(Hold(name, COORDINATOR, self._paced, "opened")))
        return actions

    def _watchdog(self) -> list[Action]:
        return [] if self._finished else [DriverSetTimer(WATCHDOG, self._stall_ms)]

    def _heal(self) -> list[Action]:
        return []

    # ------------------------------------------------------------ inside

    def _release_pace(self) -> list[Action]:
        hold, self._stands_at = self._stands_at, ""
        return [ReleaseHold(COORDINATOR, hold)] if hold else []

    def _comes_back(self, role: str) -> bool:
        """Whether an act has started it again already."""
        return any(not act.settled and role in act.awaits for act in self._acts)


class _AddNow(AddAct):
    """No step waits for it: it takes part from whichever it is ready for."""

    def on_fact(self, fact: Fact) -> list[Action]:
        return [] if isinstance(fact, Opened) else super().on_fact(fact)

    def came_in(self, role: str, proved_after_step: int, due_step: int) -> list[Action]:
        return []


def _taken_off(act: Act) -> list[Action]:
    return act.on_timer(f"{act.name}:over") if isinstance(act, PauseAct) else act.stop()
