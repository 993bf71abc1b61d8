"""A run on several hosts, worked out: run id, token, who listens where, and that the engine can do it at all."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from chaos.fault_kinds.base import is_member
from testbed.engines.local_cast import whole_cast
from testbed.lan.commands import Block, Listening, blocks, deal
from testbed.lan.settings import LanSettings
from testbed.planning import RunRequest, new_token, prepare
from testbed.run_folder import new_run_id

_OPTIONS = ("strategy", "workers", "seed", "data", "text", "model", "steps", "batch", "lr")


@dataclass(frozen=True, slots=True)
class Planned:
    """What `gradstorm plan` found."""

    run_id: str
    placed: tuple[Listening, ...]
    blocks: tuple[Block, ...]

    @property
    def document(self) -> dict[str, Any]:
        """For `--json`."""
        return {
            "schema": "gradstorm.plan/1",
            "run_id": self.run_id,
            "members": [{"role": one.role, "host": one.host, "listen": one.address} for one in self.placed],
            "blocks": [{"host": one.host, "waits": one.background, "commands": list(one.lines)} for one in self.blocks],
        }


def planned(request: RunRequest, hosts: Sequence[str], at: str, first_port: int) -> Planned:
    """Raises GradstormError for what cannot be; starts nothing. `request` is for the simulator, which needs no host."""
    plan = prepare(request).plan
    config = plan.config
    members = [role for role in whole_cast(plan) if is_member(role)]
    placed = deal(members, hosts, first_port)
    run_id = new_run_id("lan", plan.scenario.name, config.strategy, config.seed, "")
    token = new_token()
    lan = LanSettings(tuple((one.role, one.address) for one in placed), token, at, run_id)
    prepare(replace(request, engine="lan", lan=lan))  # what the engine cannot do is refused here
    return Planned(run_id, placed, blocks(config, run_id, token, placed, at or hosts[0], _told(request)))


def _told(request: RunRequest) -> list[str]:
    """The scenario and the options, as they were given."""
    assert isinstance(request.scenario, str)
    told = [request.scenario]
    for name in _OPTIONS:
        if (value := getattr(request, name)) is not None:
            told += [f"--{name}", str(value)]
    return told
