"""Kill and power cut: a role dies where it stands, and comes back if it shall."""

from __future__ import annotations

from chaos.actions import Action, FreezeTimers, Kill, Launch, ThawTimers
from chaos.acts.base import Act, Board, Keeps, Stage, Witness, point_witness
from chaos.fault_kinds.base import EVERYONE, PhaseTrigger, is_member, is_worker
from chaos.fault_kinds.roles import Killing, PowerCut, Stop
from services.events import COORDINATOR, SERVER, shard_name, worker_name
from services.host import Hold
from services.records import Fact, Opened, Proven, Recovered, RolledBack, ShardProven, ShardsRolledBack

EXIT_WAIT_MS = 10_000.0
LAUNCH_WAIT_MS = 60_000.0
BACK_WAIT_MS = 120_000.0
KILLED = (-9, 137)  # as a parent sees SIGKILL, and as a container reports it
STOPPED = (0,)  # whoever is asked to end does so in order


class KillAct(Act):
    """struck -> everybody exited: acted -> everybody who comes back is back: undone."""

    keeps = Keeps.DIES

    def __init__(self, name: str, fault: Killing, board: Board) -> None:
        super().__init__(name, fault, board)
        self.target = fault.target
        self.returns_at = fault.relaunch_at
        self.lossy = isinstance(fault, PowerCut)
        self.gently = isinstance(fault, Stop)
        self._victims: list[str] = []
        self._dying: list[str] = []
        self._codes: dict[str, int] = {}
        self._missing: list[str] = []  # launched again, not back yet
        self._back: Witness = {}

    def strike(self, hold: Hold | None) -> list[Action]:
        victims = self._find_victims()
        if not victims:
            return self.miss(f"{self.target} was not running")
        self.stage = Stage.STRUCK
        self._victims, self._dying = victims, list(victims)
        if self.target == EVERYONE:
            self.board.revivers.add(self.name)
        actions: list[Action] = []
        if isinstance(self.start, PhaseTrigger) and COORDINATOR not in victims:
            actions += [] if self.board.frozen_for else [FreezeTimers()]
            self.board.frozen_for.add(self.name)
        for role in victims:
            self.board.killed_by[role] = self.name
            actions.append(Kill(role, lossy=self.lossy, gently=self.gently))
        return actions + self.begin_wait(f"the exit of {', '.join(victims)}", EXIT_WAIT_MS)

    def on_exit(self, role: str, exit_code: int) -> list[Action]:
        if role in self._dying:
            self._dying.remove(role)
            self._codes[role] = exit_code
            return self._thaw() + self._all_dead() if not self._dying else []
        if role in self._missing and self.board.is_lost(role):  # another fault took it on its way back
            return self._arrived(role, {"cut_short_by": self.board.killed_by.get(role, "")})
        return []

    def on_launched(self, role: str, launch: int) -> list[Action]:
        if role not in self._missing or is_member(role) or role == COORDINATOR:
            return []
        return self._arrived(role, {"launch": launch})

    def on_fact(self, fact: Fact) -> list[Action]:
        if not self._missing:
            return []
        match fact:
            case Recovered():
                return self._arrived(COORDINATOR, {"recovered_at_step": fact.step, "generation": fact.generation})
            case Proven():
                return self._proved(worker_name(fact.worker), fact.step)
            case ShardProven():
                return self._arrived(shard_name(fact.shard), {"proved_at_step": fact.step})
            case RolledBack() | ShardsRolledBack():
                self._back["rolled_back_to"] = fact.to_step
            case Opened():
                return self._opened(fact.step)
        return []

    def restore(self) -> list[Action]:
        return self._thaw()

    # ------------------------------------------------------------ inside

    @property
    def _expected(self) -> tuple[int, ...]:
        return STOPPED if self.gently else KILLED

    def _find_victims(self) -> list[str]:
        running = self.board.running
        if self.target != EVERYONE:
            return [self.target] if self.target in running else []
        workers = sorted((role for role in running if is_member(role)), key=lambda role: (len(role), role))
        return [role for role in (COORDINATOR, SERVER) if role in running] + workers

    def _thaw(self) -> list[Action]:
        if self.name not in self.board.frozen_for:
            return []
        self.board.frozen_for.discard(self.name)
        return [] if self.board.frozen_for else [ThawTimers()]

    def _all_dead(self) -> list[Action]:
        self.wait = None
        otherwise = {role: code for role, code in self._codes.items() if code not in self._expected}
        if otherwise:
            role, code = next(iter(otherwise.items()))
            return self.miss(f"{role} exited by itself with code {code} before the signal")
        witness = {**point_witness(self.start), "exit_code": next(iter(self._codes.values()))}
        if self.target == EVERYONE:
            witness["killed"] = ", ".join(self._victims)
        return self.acted(witness) + self._launch()

    def _launch(self) -> list[Action]:
        if is_worker(self.target) and self.returns_at is None:
            return self.undone({"how": f"nothing to undo: {self.target} stays out"})
        launches: list[Action] = [Launch(role) for role in self._victims]
        self._missing = [role for role in self._victims if role not in self.board.awaited_by]
        if self.returns_at is not None:
            self.board.awaited_by[self.target] = self.name
            self.begin_open_wait(f"{self.target} to be back in step {self.returns_at}")
            return launches
        return launches + self.begin_wait(f"{', '.join(self._missing)} to be back", BACK_WAIT_MS)

    def _arrived(self, role: str, witness: Witness) -> list[Action]:
        if role not in self._missing:
            return []
        self._missing.remove(role)
        self.no_longer_awaited(role)
        self._back.update(witness)
        return [] if self._missing else self.undone(self._back)

    def _proved(self, role: str, step: int) -> list[Action]:
        exact = self.returns_at is not None and isinstance(self.start, PhaseTrigger) and role in self._missing
        wrong = self.came_in(role, step, self.returns_at or 0) if exact else []
        return wrong or self._arrived(role, {"proved_after_step": step})

    def _opened(self, step: int) -> list[Action]:
        """Its step has opened: whoever is not back by now is late.

        Where everyone died, the run first goes back to a checkpoint. What the coordinator opens before that is for
        those whose death it has not heard of, and goes nowhere.
        """
        due = step >= self.returns_at if self.returns_at is not None else "rolled_back_to" in self._back
        late = [role for role in self._missing if is_worker(role)]
        if not due or not late or not isinstance(self.start, PhaseTrigger):
            return []
        return self.miss(f"step {step} opened without {', '.join(late)}, which had to be back")
