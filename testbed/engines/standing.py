"""A run without an end, in containers that stand until somebody takes them down, with faults put on by hand.

    connected -> every role healthy (its own gRPC health service is asked) -> `told_up` -> trains, slowly -> "down"

The same run as of every other engine (`LocalRun`), with the driver of `chaos.by_hand` in place of a schedule's. What a
person asks for comes in over a `ControlServer` and is carried out in the run's own queue, in order.
"""

from __future__ import annotations

import asyncio
import os
import secrets
import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import median
from typing import Any

from chaos.actions import Action
from chaos.by_hand import HandDriver
from chaos.fault_kinds.roles import Pause
from chaos.hand_words import hand_fault
from services.shell.driver_link import LinksSeen, Thing
from services.shell.loop import run as run_loop
from testbed.containers.health_probe import why_unhealthy
from testbed.containers.labels import this_driver
from testbed.engines.base import EngineError, EngineOutcome, ProgressSink, RunPlan
from testbed.engines.compose_place import ComposePlace
from testbed.engines.containers import ContainersEngine
from testbed.engines.local import LocalRun, run_in
from testbed.engines.local_cast import first_cast
from testbed.hand.control import Answer, ControlServer, Standing, remove_control, write_control
from testbed.hand.picture import Picture
from testbed.run_folder import RunFolder
from training.errors import ConfigurationError

HEALTHY_S = 30.0
_PROBE_S = 2.0
_POLL_S = 0.05
_ACTED_S = 15.0
_HEALED_S = 45.0
TAKEN_DOWN = "taken down"


@dataclass(frozen=True, slots=True)
class _ByHand:
    """To be done between two things that happen in the run."""

    what: Callable[[], list[Action]]
    done: asyncio.Future[None]


class StandingEngine(ContainersEngine):
    """An `Engine` whose run ends when it is told to. `told_up` is called once, when every role is healthy."""

    def __init__(self, picture: Picture, pace_ms: float, told_up: Callable[[Standing], None]) -> None:
        self._picture = picture
        self._pace_ms = pace_ms
        self._told_up = told_up

    def run(self, plan: RunPlan, folder: RunFolder, progress: ProgressSink) -> EngineOutcome:
        """Until somebody takes it down. Raises EngineError; KeyboardInterrupt passes through, with nothing left."""
        return run_loop(run_in(ComposePlace(plan, folder, progress), plan, folder, progress, self._make))

    def _make(self, *of: Any) -> StandingRun:
        made = StandingRun(*of)
        made.stand(self._picture, self._pace_ms, self._told_up)
        return made


class StandingRun(LocalRun):
    """Duty of the caller: `stand` before `go`."""

    def stand(self, picture: Picture, pace_ms: float, told_up: Callable[[Standing], None]) -> None:
        """What a standing run knows more than another."""
        self._picture = picture
        self._told_up = told_up
        self._driver = self._hand = HandDriver(self._plan.scenario, self._plan.config.strategy, pace_ms)
        self._word = secrets.token_urlsafe(24)
        self._control = ControlServer(self._word, self._answer)
        self._delays_ms: dict[tuple[str, str], float] = {}  # link -> of the newest heartbeats
        self._up_since_s = 0.0
        self._becoming: asyncio.Task[None] | None = None

    async def close(self) -> None:
        remove_control(self._folder.path)
        await self._control.stop()
        if self._becoming is not None:
            self._becoming.cancel()
            await asyncio.gather(self._becoming, return_exceptions=True)
        await super().close()

    # ------------------------------------------------------------ up

    def _publish(self) -> None:
        super()._publish()
        if self._becoming is None:
            self._becoming = self._loop.create_task(self._become_healthy())

    async def _become_healthy(self) -> None:
        """Ask every role whether it serves, until all do; a wait that runs out ends the run."""
        began_s = time.monotonic()
        missing = set(first_cast(self._plan))
        while missing:
            for role in sorted(missing):
                address = self._place.from_here(role, self._roles.server.addresses[role])
                if not await asyncio.to_thread(why_unhealthy, address, _PROBE_S):
                    missing.discard(role)
            since_s = time.monotonic() - began_s
            if missing and since_s > HEALTHY_S:
                names = ", ".join(sorted(missing))
                self._queue.put_nowait(EngineError(f"not healthy within {HEALTHY_S:.0f} s: {names}"))
                return
            if missing:
                self._progress.waiting("roles to be healthy", tuple(sorted(missing)), since_s, HEALTHY_S)
                await asyncio.sleep(_POLL_S)
        await self._announce()

    async def _announce(self) -> None:
        assert isinstance(self._place, ComposePlace)
        standing = Standing(
            run_id=self._plan.config.run_id,
            folder=str(self._folder.path),
            project=self._place.project,
            docker=self._place.target,
            driver=this_driver(),
            pid=os.getpid(),
            port=await self._control.start(),
            word=self._word,
        )
        write_control(standing)
        self._up_since_s = time.monotonic()
        self._told_up(standing)

    # ------------------------------------------------------------ what a person asks for

    async def _answer(self, request: Answer) -> Answer:
        match request.get("do"):
            case "status":
                return self._status()
            case "inject":
                return await self._inject([str(word) for word in request.get("words", [])])
            case "heal":
                return await self._heal()
            case "rest":
                await self._by_hand(self._hand.rest)
                return {}
            case "go on":
                await self._by_hand(self._hand.go_on)
                return {}
            case "down":
                await self._by_hand(lambda: self._hand.end(TAKEN_DOWN))
                return {}
        raise ConfigurationError(f"nothing is known of {request.get('do')!r}")

    async def _inject(self, words: list[str]) -> Answer:
        """Put it on, and wait until it is seen to act."""
        assert isinstance(self._place, ComposePlace)
        fault = hand_fault(words, set(self._picture.roles), self._place.spare)
        name = ""

        def put_on() -> list[Action]:
            nonlocal name
            name, actions = self._hand.inject(self._now_ms(), fault)
            return actions

        await self._by_hand(put_on)
        if isinstance(fault, Pause):  # its witness comes when it goes on; that it stands still is seen now
            acted = await self._until_seen(lambda: self._picture.roles[fault.target].state == "stopped", _ACTED_S)
            told = f"fault {name}: {fault.target} is stopped" if acted else ""
        else:
            acted = await self._until_seen(lambda: bool(self._picture.told(name)), _ACTED_S)
            told = self._picture.told(name)
        why = "" if acted else self._picture.why_unseen(fault, self._delays_ms)
        return {"fault": name, "state": self._hand.state_of(name), "acted": acted, "told": told, "why": why}

    async def _heal(self) -> Answer:
        before, dead = self._hand.active_faults, sorted(self._hand.absent)
        await self._by_hand(lambda: self._hand.heal(self._now_ms()))
        healed = await self._until_seen(lambda: not (self._hand.active_faults or self._hand.absent), _HEALED_S)
        return {
            "healed": healed,
            "were_active": list(before),
            "were_dead": dead,
            "active": list(self._hand.active_faults),
            "dead": sorted(self._hand.absent),
        }

    def _status(self) -> Answer:
        picture = self._picture
        return {
            "run_id": self._plan.config.run_id,
            "strategy": self._plan.config.strategy,
            "up_s": round(time.monotonic() - self._up_since_s, 1),
            "step": picture.step,
            "generation": picture.generation,
            "members": picture.members,
            "loss": picture.loss,
            "roles": {role: {"launch": row.launch, "state": row.state, "step": row.step}
                      for role, row in sorted(picture.roles.items())},
            "faults": dict(picture.faults),
            "active": list(self._hand.active_faults),
            "delays_ms": {f"{source}→{target}": round(delay, 1)
                          for (source, target), delay in sorted(self._delays_ms.items())},
            "verdicts": dict(picture.verdicts),
            "waiting": str(picture.waits_for or ""),
        }  # fmt: skip

    async def _by_hand(self, what: Callable[[], list[Action]]) -> None:
        done = self._loop.create_future()
        self._put(_ByHand(what, done))
        await done

    async def _until_seen(self, condition: Callable[[], bool], bound_s: float) -> bool:
        until_s = time.monotonic() + bound_s
        while not condition() and time.monotonic() < until_s:
            await asyncio.sleep(_POLL_S)
        return condition()

    def _put(self, item: Any) -> None:
        self._queue.put_nowait(item)

    async def _take(self, item: Any) -> None:
        if not isinstance(item, _ByHand):
            await super()._take(item)
            return
        for action in item.what():
            await self._carry_out(action)
        if not item.done.done():
            item.done.set_result(None)

    async def _said(self, role: str, launch: int, thing: Thing) -> None:
        if isinstance(thing, LinksSeen):
            for source, seen in thing.links.items():
                if seen.delays_ms:
                    self._delays_ms[source, role] = median(seen.delays_ms)
        await super()._said(role, launch, thing)
