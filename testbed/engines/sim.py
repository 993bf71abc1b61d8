"""The engine `sim`: the roles as objects in one process, in virtual time, byte for byte reproducible from the seed.

Everything that decides anything is shared with the other engines: the roles, `services.host.Host`, the driver. What
is the simulator's own is the world that they live in (`sim_world`, `sim_network`) and the glue below.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

from chaos.actions import (
    AbortRun,
    Action,
    ApplyLinkFault,
    ArmHold,
    CorruptCheckpoint,
    DriverEvent,
    DriverSetTimer,
    DriverTimer,
    FreezeTimers,
    Kill,
    Launch,
    LinkMeasured,
    ReleaseHold,
    Resume,
    RoleExited,
    RoleLaunched,
    RoleObserved,
    RoleStood,
    RunBegan,
    Suspend,
    Tell,
    ThawTimers,
    UndoLinkFault,
)
from chaos.driver import Driver
from chaos.scenario import Scenario, refusals
from services.any_config import first_cast
from services.events import COORDINATOR, DRIVER, VERIFIER, Stop
from services.host import HoldReached, Recorder, Role
from services.messages import Conclude, Concluded, Judged, Stored
from services.records import Fact, Finished
from services.roles.coordinator import ResumePoint
from services.roles.verifier import Verifier
from services.shell.cast import coordinator_of, make_member
from testbed.engines.base import NO_VERIFIER, EngineError, EngineOutcome, ProgressSink, RoleExit, RunPlan
from testbed.engines.corruption import corrupt_checkpoints
from testbed.engines.sim_network import LinkFault
from testbed.engines.sim_world import SIGKILLED, Exited, World
from testbed.plants import planted
from testbed.run_folder import RunFolder
from training.disk import LossyDisk, SyncDir, SyncFile, WriteFile, apply_all
from training.numerics import fingerprint

NOTICE_MS = 0.1  # what it takes the driver to learn of something
ENDING_MS = 60_000.0  # virtual time that the roles have to end after the coordinator did
CALLS_MAX = 50_000_000
DATASET = "dataset.safetensors"


class SimEngine:
    """See the module's docstring."""

    @property
    def name(self) -> str:
        return "sim"

    def refusals(self, scenario: Scenario, strategy: str) -> list[str]:
        return refusals(scenario, self.name, strategy)

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        with planted(plan.plants):
            session = _Session(plan, progress)
            try:
                return session.run()
            finally:
                session.export(folder)

    def run_in_memory(self, plan: RunPlan, progress: ProgressSink) -> EngineOutcome:
        """As `run`, but nothing is left of it beside the outcome: for those who make thousands."""
        with planted(plan.plants):
            return _Session(plan, progress).run()


class _Session:
    """One run in one world."""

    def __init__(self, plan: RunPlan, progress: ProgressSink) -> None:
        self.plan = plan
        self.progress = progress
        self.disk = LossyDisk()
        self.blob = plan.data
        apply_all(self.disk, (WriteFile(DATASET, self.blob), SyncFile(DATASET), SyncDir("")))  # a power cut spares it
        self.world = World(plan.config.seed, plan.config, fingerprint(), self.disk, self._watch, self._to_driver)
        self.world.evidence = plan.verifier
        self.world.network.on_affected = self._affected
        self.driver = Driver(plan.scenario, plan.config.strategy, plan.promises)
        self.recorder = Recorder(DRIVER, 1)
        self.exits: list[RoleExit] = []
        self.expected: dict[str, dict[str, int | str]] = {}
        self.stop: Stop | None = None
        self.aborted = ""
        self.verdict: dict[str, Any] | None = None
        self._ordered: set[str] = set()
        self._leaving = False  # the run is over: whoever is stopped now has no excuse for what it did not report

    # ------------------------------------------------------------ the run

    def run(self) -> EngineOutcome:
        config = self.plan.config
        begin = self.driver.handle(0.0, RunBegan())
        for role in first_cast(config.strategy, config.workers):
            if role != VERIFIER or self.plan.verifier:
                self._launch(role)
        self._carry_out(begin)
        self._until(self._over, "the run")
        self._end_roles()
        self._conclude()
        stop = self.stop or Stop("aborted", self.aborted)
        return EngineOutcome(self.verdict or {}, tuple(self.exits), stop.condition, stop.reason, self.aborted)

    def _until(self, done: Callable[[], bool], what: str, bound_ms: float = float("inf")) -> bool:
        """Let the world run until `done`. False when it came to rest, or virtual time ran out, before."""
        end_ms = self.world.now_ms + bound_ms
        for _ in range(CALLS_MAX):
            if done():
                return True
            if self.world.now_ms > end_ms or not self.world.step():
                return done()
        raise EngineError(f"{what} did not end within {CALLS_MAX} simulated calls; that is a bug of ours")

    def _over(self) -> bool:
        return self.aborted != "" or self.stop is not None

    def _end_roles(self) -> None:
        """The coordinator ended (or the run was given up): the others end too; whoever does not is stopped."""
        if not self.aborted:
            self._until(self._others_gone, "the end of the roles", ENDING_MS)
            self._leaving = True
        for name in sorted(self.world.nodes):
            if name != VERIFIER and self.world.nodes[name].alive:
                self._ordered.add(name)
                self.world.kill(name)
        self._until(lambda: False, "the last notices", 2 * NOTICE_MS)

    def _others_gone(self) -> bool:
        return not any(node.alive for name, node in self.world.nodes.items() if name != VERIFIER)

    def _conclude(self) -> None:
        """Every record of the driver, then what to expect, to the verifier; its verdict ends the run."""
        if not self.plan.verifier:
            self.aborted = self.aborted or NO_VERIFIER
            return
        if not self.world.nodes[VERIFIER].alive:
            self._launch(VERIFIER)
        self._until(lambda: self.recorder.unstored == 0, "the driver's records", ENDING_MS)
        self.expected[DRIVER] = {"1": self.recorder.last}
        self.world.tell(DRIVER, VERIFIER, Conclude(json.dumps(self.expected, sort_keys=True)))
        if not self._until(lambda: self.verdict is not None, "the verdict", ENDING_MS) and not self.aborted:
            self.aborted = f"the verifier did not conclude within {ENDING_MS:.0f} ms of virtual time"

    def export(self, folder: RunFolder) -> None:
        """Write what the simulated disk holds into the run's folder, and the notes into its logs."""
        _export(self.disk, "", folder)
        lines = [f"{at_ms:.3f} {role} {text}\n" for at_ms, role, text in self.world.notes]
        (folder.logs / "notes.log").write_text("".join(lines), encoding="utf-8")

    # ------------------------------------------------------------ roles

    def _launch(self, role: str) -> None:
        makers: dict[str, Callable[[int], Role]] = {
            COORDINATOR: self._coordinator,
            VERIFIER: lambda launch: Verifier(launch, self.blob, self.plan.config.to_json()),
        }
        make = makers.get(role) or (lambda launch: make_member(role, launch))
        launch = self.world.launch(role, make, self._before_start)
        self.progress.role(role, launch, "up")
        if role == VERIFIER and launch > 1:
            self._report(again=True)

    def _before_start(self, role: str, launch: int) -> None:
        """Holds are armed before the role's first event."""
        self._feed(RoleLaunched(role, launch))

    def _coordinator(self, launch: int) -> Role:
        resume = self.plan.resume
        point = None if resume is None else ResumePoint(resume.checkpoint, resume.name, resume.run_id)
        return coordinator_of(self.plan.config, launch, self.blob, point)

    # ------------------------------------------------------------ what happens in the world

    def _watch(self, role: str, thing: object) -> None:
        match thing:
            case HoldReached(hold):
                self.progress.role(role, self.world.nodes[role].launch, f"held at {hold.phase}")
                self._later(RoleStood(role, hold.name))
            case Stop(condition, reason):
                if role == COORDINATOR:
                    self.stop = thing
                elif condition != "finished":
                    self.progress.note(f"{role} stopped: {condition} {reason}")
            case Exited():
                self._exited(role, thing)
            case _:
                self._fact(role, thing)  # type: ignore[arg-type]

    def _fact(self, role: str, fact: Fact) -> None:
        self.progress.fact(role, fact)
        if role == COORDINATOR:
            if isinstance(fact, Finished):
                self._feed(RoleObserved(role, fact))
            else:
                self._later(RoleObserved(role, fact))

    def _exited(self, role: str, exited: Exited) -> None:
        ordered = role in self._ordered
        self._ordered.discard(role)
        reason = "a fault or the end asked for it" if ordered else exited.condition
        self.exits.append(RoleExit(role, exited.launch, exited.exit_code, ordered or exited.exit_code == 0, reason))
        last: int | str = "excused: killed" if exited.exit_code and not self._leaving else exited.last
        self.expected.setdefault(role, {})[str(exited.launch)] = last
        self.progress.role(role, exited.launch, f"exited {exited.exit_code}")
        self._later(RoleExited(role, exited.launch, exited.exit_code))

    def _to_driver(self, message: object) -> None:
        if isinstance(message, Stored):
            self.recorder.stored(message)
        elif isinstance(message, Judged):
            self.progress.judged(json.loads(message.verdicts_json))
        elif isinstance(message, Concluded):
            self.verdict = json.loads(message.verdict_json)

    def _affected(self, fault: LinkFault) -> None:
        """A network fault touched its first message."""
        self._later(LinkMeasured(fault.fault, "during", dict(fault.figures)))

    # ------------------------------------------------------------ the driver

    def _later(self, event: DriverEvent) -> None:
        self.world.after(NOTICE_MS, lambda: self._feed(event))

    def _feed(self, event: DriverEvent) -> None:
        self._carry_out(self.driver.handle(self.world.now_ms, event))

    def _carry_out(self, actions: list[Action]) -> None:
        for action in actions:
            self._act(action)
        self._report()

    def _act(self, action: Action) -> None:
        world = self.world
        match action:
            case Tell(fact):
                self.progress.fact(DRIVER, fact)
                self.recorder.add(fact)
            case ArmHold(hold):
                world.arm(hold)
            case ReleaseHold(role, hold):
                world.release(role, hold)
            case FreezeTimers():
                world.freeze(COORDINATOR)
            case ThawTimers():
                world.thaw(COORDINATOR)
            case DriverSetTimer(name, after_ms):
                world.after(after_ms, lambda: self._feed(DriverTimer(name)))
            case AbortRun(reason):
                self.aborted = reason
            case ApplyLinkFault() | UndoLinkFault():
                self._act_on_links(action)
            case _:
                self._act_on_roles(action)

    def _act_on_roles(self, action: Action) -> None:
        match action:
            case Kill(role, lossy, gently):
                self._ordered.add(role)
                self.world.kill(role, lossy, 0 if gently else SIGKILLED)
            case Suspend(role):
                self.world.suspend(role)
            case Resume(role):
                self.world.resume(role)
            case Launch(role):
                self._launch(role)
            case CorruptCheckpoint(_, how, count):
                names = corrupt_checkpoints(self.disk, how, count)
                self.progress.note(f"damaged ({how}): {', '.join(names)}")
            case _:
                raise AssertionError(f"unexpected {action}")

    def _act_on_links(self, action: ApplyLinkFault | UndoLinkFault) -> None:
        network = self.world.network
        if isinstance(action, ApplyLinkFault):
            network.apply(
                LinkFault(action.fault, action.kind, action.source, action.target, action.settings, self.world.now_ms)
            )  # fmt: skip
            return
        figures: dict[str, str | int | float] = {}
        for fault in network.undo(action.fault):
            for name, value in fault.figures.items():
                figures[name] = int(figures.get(name, 0)) + int(value)
        self._later(LinkMeasured(action.fault, "after", figures))

    def _report(self, again: bool = False) -> None:
        if not self.plan.verifier:
            return
        for report in self.recorder.again() if again else self.recorder.report():
            self.world.tell(DRIVER, VERIFIER, report)


def _export(disk: LossyDisk, path: str, folder: RunFolder) -> None:
    for name in disk.list(path):
        inner = f"{path}/{name}" if path else name
        target = folder.path / inner
        try:
            content = disk.read(inner)
        except IsADirectoryError:
            target.mkdir(exist_ok=True)
            _export(disk, inner, folder)
        else:
            target.write_bytes(content)
