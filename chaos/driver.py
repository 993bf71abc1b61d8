"""The driver: it carries one schedule through one run, the same on every engine.

    driver = Driver(scenario, "ring")
    actions = driver.handle(now_ms, event)      # for every DriverEvent, in order; carry the actions out in order

Pure and deterministic: the same events give the same actions. Each fault is an act (`chaos.acts`); the driver arms
its points as holds, tells it when they are reached, and keeps what concerns the run as a whole:

- at the start it tells what the scenario promises, and arms every hold of the first cast; holds that are still to be
  reached are armed again whenever their role is launched anew;
- a role that stands at a hold meets the faults of that point in order, a death last, and goes on if none keeps it;
- before the clean steps the coordinator stands until faults of links are off and measured (`chaos.gate`);
- times count from the first step that opens;
- a fault whose point the run has left behind is told as missed; a run that stands still for longer than the protocol
  allows, or a role that exits unasked, aborts the run and says who was missing;
- when nothing is left to undo it tells `Healed`, once, not before the first step is open.

Duties of the caller, beside those in `chaos.actions`: feed `RoleLaunched` before the role's first event, and every
fact of the coordinator (what a new launch of it repeats from its log is passed over). A coordinator that is launched
again has no frozen timers. `waiting` says, at any time, what
the driver waits for.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from chaos.actions import (
    AbortRun,
    Action,
    ArmHold,
    DriverEvent,
    DriverSetTimer,
    DriverTimer,
    LinkMeasured,
    ReleaseHold,
    RoleExited,
    RoleLaunched,
    RoleObserved,
    RoleStood,
    RunBegan,
    Tell,
)
from chaos.acts.base import Act, Board, Keeps, Stage
from chaos.acts.kills import KillAct
from chaos.acts.table import act_for
from chaos.fault_kinds.base import PhaseTrigger, TimeTrigger
from chaos.fault_kinds.links import Flap, LastingLinkFault
from chaos.fault_kinds.roles import Pause
from chaos.gate import gate_of, keeps_shut
from chaos.scenario import Scenario
from services.any_config import AnyStrategy, first_cast
from services.events import COORDINATOR, VERIFIER, worker_name
from services.host import Hold
from services.records import (
    Closed,
    Committed,
    Expectation,
    Fact,
    FaultMissed,
    Finished,
    Healed,
    Opened,
    Recovered,
    RolledBack,
    ShardsCommitted,
    ShardsEvaluated,
    ShardsOpened,
    ShardsRolledBack,
    ShardsSwapped,
    StepApplied,
)

WATCHDOG = "watchdog"
SCHEDULE = "schedule"  # stands for the schedule as a whole in a FaultMissed
_SHARD_PROGRESS = (ShardsOpened, ShardsCommitted, ShardsSwapped, ShardsEvaluated, ShardsRolledBack)
_PROGRESS = (Opened, Committed, StepApplied, RolledBack, *_SHARD_PROGRESS)


class Driver:
    """See the module's docstring."""

    def __init__(
        self, scenario: Scenario, strategy: AnyStrategy, promises: Mapping[str, str | int] | None = None
    ) -> None:
        timing = scenario.training.timing.timing()
        self._scenario = scenario
        self._promises = promises or {}  # beside the scenario's own: what the run goes on from
        self._board = Board(timing.lease_ms, timing.deadline_ms, timing.join_wait_ms)
        names = scenario.fault_names
        self._acts = [act_for(name, fault, self._board) for name, fault in zip(names, scenario.faults, strict=True)]
        self._first_cast = first_cast(strategy, scenario.training.workers)
        self._holds: dict[str, Hold] = {}
        self._gate = gate_of(scenario)
        self._at_gate = ""  # the hold at which the coordinator stands before the gate
        self._progress_ms = 0.0
        self._stall_ms = timing.join_wait_ms + timing.deadline_ms + timing.exchange_ms + timing.lease_ms
        self._stall_ms += max((_lasts_ms(fault) for fault in scenario.faults), default=0.0)
        self._opened = 0  # newest step that was opened; none yet
        self._healed = False
        self._committed = 0  # newest committed step heard of
        self._finished = False
        self._repeating = 0  # the launch of a coordinator that records its log again, until it says that it recovered
        self._aborted = False

    @property
    def waiting(self) -> tuple[str, ...]:
        """What the driver waits for at this moment, one line each."""
        return tuple(line for act in self._acts if (line := act.awaits))

    @property
    def active_faults(self) -> tuple[str, ...]:
        """Names of the faults that have begun and are not undone."""
        return tuple(act.name for act in self._acts if act.acting)

    def handle(self, now_ms: float, event: DriverEvent) -> list[Action]:
        """The actions that follow from one event. `now_ms` never falls."""
        assert now_ms >= self._board.now_ms, "time does not go back"
        if self._aborted:
            return []
        self._board.now_ms = now_ms
        actions = self._handle(event)
        return actions if self._aborted else actions + self._heal() + self._open_gate()

    def _handle(self, event: DriverEvent) -> list[Action]:
        match event:
            case RunBegan():
                return self._begin()
            case RoleLaunched(role, launch):
                return self._launched(role, launch)
            case RoleStood(role, hold):
                return self._stood(role, hold)
            case RoleObserved(role, fact):
                return self._observed(fact) if role == COORDINATOR and not self._is_repeated(fact) else []
            case RoleExited(role, launch, exit_code):
                return self._exited(role, launch, exit_code)
            case DriverTimer(name):
                return self._timer(name)
            case LinkMeasured():
                return _each(act.on_measured(event) for act in self._unsettled())

    # ------------------------------------------------------------ the start, and roles that come and go

    def _begin(self) -> list[Action]:
        self._progress_ms = self._board.now_ms
        scenario = self._scenario
        actions: list[Action] = [
            Tell(Expectation(scenario.name, scenario.fixed, {**scenario.promises, **self._promises}))
        ]
        actions += [action for role in self._first_cast for action in self._arm(role)]
        for act in self._acts:
            if isinstance(act.start, TimeTrigger):
                actions += act.arm()
        return [*actions, DriverSetTimer(WATCHDOG, self._stall_ms)]

    def _launched(self, role: str, launch: int) -> list[Action]:
        self._progress_ms = self._board.now_ms
        self._board.running[role] = launch
        self._board.killed_by.pop(role, None)
        if role == COORDINATOR and launch > 1:
            self._repeating = launch
        armed = self._arm(role) if launch > 1 or role not in self._first_cast else []
        return armed + _each(act.on_launched(role, launch) for act in self._unsettled())

    def _exited(self, role: str, launch: int, exit_code: int) -> list[Action]:
        self._progress_ms = self._board.now_ms
        if self._board.running.get(role) == launch:
            del self._board.running[role]
        if role == COORDINATOR:
            self._at_gate = ""
        if role in self._board.killed_by:
            return _each(act.on_exit(role, exit_code) for act in self._unsettled())
        if self._finished:
            return []
        return self._abort(f"{role} (launch {launch}) exited with code {exit_code}; no fault asked for it, see its log")

    # ------------------------------------------------------------ holds

    def _arm(self, role: str) -> list[Action]:
        """Every point of this role that is still to be reached, one hold each, in the order of the run."""
        actions: list[Action] = []
        armed: set[str] = set()
        for act in self._acts:
            for point in _points_left(act):
                if point.role != role:
                    continue
                hold = _hold_at(point)
                if hold.name not in armed:
                    armed.add(hold.name)
                    self._holds[hold.name] = hold
                    actions.append(ArmHold(hold))
                if point == act.start:
                    actions += act.arm()
        if self._gate is not None and role == COORDINATOR and _hold_at(self._gate).name not in armed:
            hold = self._holds[_hold_at(self._gate).name] = _hold_at(self._gate)
            actions.append(ArmHold(hold))
        return actions

    def _stood(self, role: str, name: str) -> list[Action]:
        self._progress_ms = self._board.now_ms
        hold = self._holds.get(name)
        if hold is None:
            return [ReleaseHold(role, name)]
        actions: list[Action] = []
        ending = [act for act in self._acts if act.acting and act.until is not None and _hold_at(act.until) == hold]
        for act in ending:
            actions += act.stop(hold)
        waiting = [act for act in self._acts if act.stage is Stage.WAITING and _starts_at(act, hold)]
        for act in sorted(waiting, key=lambda act: act.keeps):
            actions += act.strike(hold)
            if act.keeps is not Keeps.GOES_ON and act.acting:
                return actions
        if self._gate is not None and _hold_at(self._gate) == hold:
            self._at_gate = name
            return actions
        kept = _released(actions, name) or any(act.holds_back for act in ending)
        return actions if kept else [*actions, ReleaseHold(role, name)]

    def _open_gate(self) -> list[Action]:
        """Let the coordinator into the clean steps once every fault of links is measured."""
        if not self._at_gate or keeps_shut(self._acts):
            return []
        name, self._at_gate = self._at_gate, ""
        return [ReleaseHold(COORDINATOR, name)]

    # ------------------------------------------------------------ facts of the coordinator

    def _observed(self, fact: Fact) -> list[Action]:
        if isinstance(fact, _PROGRESS):
            self._progress_ms = self._board.now_ms
        if isinstance(fact, Committed | ShardsCommitted):
            self._committed = fact.step
        elif isinstance(fact, RolledBack | ShardsRolledBack):
            self._committed = fact.to_step
        actions: list[Action] = []
        if isinstance(fact, Opened | ShardsOpened):
            actions += [] if self._opened else self._first_opened()
            actions += self._left_behind(fact.step)
            self._opened = fact.step
        actions += _each(act.on_fact(fact) for act in self._unsettled())
        if isinstance(fact, Closed):
            actions += self._unplanned(fact)
        if isinstance(fact, Finished):
            self._finished = True
            reason = f"the run ended at step {fact.step}: {fact.condition}"
            actions += _each(act.close(reason) for act in self._unsettled())
        return actions

    def _is_repeated(self, fact: Fact) -> bool:
        """A coordinator that was launched again first records its whole log once more."""
        if self._repeating and isinstance(fact, Recovered) and fact.incarnation == self._repeating:
            self._repeating = 0
        return self._repeating > 0

    def _first_opened(self) -> list[Action]:
        """Times count from here."""
        return [
            DriverSetTimer(f"{act.name}:start", act.start.at_ms)
            for act in self._acts
            if isinstance(act.start, TimeTrigger)
        ]

    def _left_behind(self, step: int) -> list[Action]:
        """Step `step` is open: a point of an earlier one is not reached any more, nor a joiner's of this one."""
        actions: list[Action] = []
        for act in self._acts:
            if act.stage is Stage.WAITING and _is_behind(act.start, step):
                role = getattr(act.start, "role", "")
                since = "never armed" if act.armed_ms is None else f"armed since {act.armed_ms:.0f} ms"
                now = f"step {step} opened at {self._board.now_ms:.0f} ms"
                actions += act.miss(
                    f"{role} did not come to it ({act.awaits.partition(' waits for ')[2]}; {since}); {now}"
                )
            elif act.acting and act.until is not None and _is_behind(act.until, step):
                actions += act.stop()
        return actions

    def _unplanned(self, fact: Closed) -> list[Action]:
        """With a fixed schedule nobody else may miss a deadline: the result would not be the scheduled one."""
        if not self._scenario.fixed:
            return []
        missing = [worker_name(worker) for worker, reason in fact.left_out if "deadline" in reason]
        late = [role for role in missing if not any(role in act.late_in(fact.step) for act in self._acts)]
        if not late:
            return []
        return [Tell(FaultMissed(SCHEDULE, f"{', '.join(late)} missed the deadline of step {fact.step} unplanned"))]

    # ------------------------------------------------------------ time, and the end

    def _timer(self, name: str) -> list[Action]:
        if name == WATCHDOG:
            return self._watchdog()
        actions: list[Action] = []
        for act in self._acts:
            if name == f"{act.name}:start":
                actions += act.strike(None) if act.stage is Stage.WAITING else []
            elif name.startswith(f"{act.name}:"):
                self._progress_ms = self._board.now_ms
                actions += act.on_timer(name)
        return actions

    def _watchdog(self) -> list[Action]:
        if self._finished:
            return []
        idle_ms = self._board.now_ms - self._progress_ms
        nobody_yet = not self._opened and not self._board.running  # the engine bounds that wait, and says who
        if idle_ms < self._stall_ms or nobody_yet:
            left_ms = self._stall_ms if nobody_yet else self._stall_ms - idle_ms
            return [DriverSetTimer(WATCHDOG, max(1.0, left_ms))]  # a rest of rounding would be due at once, for ever
        waits = "; ".join(self.waiting) or "no fault is outstanding"
        return self._abort(f"no step moved for {idle_ms:.0f} ms, since {self._progress_ms:.0f} ms; {waits}")

    def _abort(self, reason: str) -> list[Action]:
        actions = _each(act.close(reason) for act in self._unsettled())
        self._aborted = True
        return [*actions, Tell(FaultMissed(SCHEDULE, reason)), AbortRun(reason)]  # told, so that the history says when

    def _unsettled(self) -> list[Act]:
        """What is settled hears of nothing any more."""
        return [act for act in self._acts if not act.settled]

    def _heal(self) -> list[Action]:
        done = self._opened and all(act.settled or _only_the_verifier_lags(act, self._opened) for act in self._acts)
        if self._healed or self._finished or not done:
            return []
        self._healed = True
        return [Tell(Healed(self._scenario.liveness_bound_ms, self._scenario.clean_steps, self._committed))]


def _only_the_verifier_lags(act: Act, opened_step: int) -> bool:
    """Training does not wait for the verifier: its death at a step that is past, and its return, may well come later
    than the last step.
    """
    if not isinstance(act, KillAct) or act.target != VERIFIER:
        return False
    past = isinstance(act.start, PhaseTrigger) and act.start.role == VERIFIER and act.start.step < opened_step
    return act.stage is Stage.ACTED or (act.stage is Stage.WAITING and past)


def _each(answers: Iterable[list[Action]]) -> list[Action]:
    return [action for answer in answers for action in answer]


def _points_left(act: Act) -> list[PhaseTrigger]:
    """Points that the act has still to reach."""
    points = [act.start] if act.stage is Stage.WAITING else []
    points += [act.until] if act.until is not None and not act.settled else []
    return [point for point in points if isinstance(point, PhaseTrigger)]


def _hold_at(point: PhaseTrigger) -> Hold:
    assert point.role is not None
    name = f"{point.role}.{point.step}.{point.phase}" + (f".{point.chunk}" if point.chunk else "")
    return Hold(name, point.role, point.step, point.phase, point.chunk)


def _starts_at(act: Act, hold: Hold) -> bool:
    return isinstance(act.start, PhaseTrigger) and _hold_at(act.start) == hold


def _is_behind(point: object, opened_step: int) -> bool:
    """Whether the opening of a step means that the point is not reached any more. The verifier lags; it may be late."""
    if not isinstance(point, PhaseTrigger) or point.role == VERIFIER:
        return False
    joiner = point.phase in ("sync", "proved")
    return point.step < opened_step or (joiner and point.step == opened_step)


def _released(actions: list[Action], name: str) -> bool:
    return any(isinstance(action, ReleaseHold) and action.hold == name for action in actions)


def _lasts_ms(fault: object) -> float:
    """How long a fault by itself may hold up the run."""
    if isinstance(fault, Flap):
        return fault.cycles * (fault.down_ms + fault.up_ms)
    return (fault.for_ms or 0.0) if isinstance(fault, LastingLinkFault | Pause) else 0.0
