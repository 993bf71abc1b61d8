"""What driver and role say to each other on the control link, built and applied."""

from __future__ import annotations

from typing import TYPE_CHECKING

from services.fact_codec import fact_to_numbered
from services.host import Hold
from services.records import Closed, Fact, ShardsSwapped, StepApplied
from services.wire import control_pb2 as pb

if TYPE_CHECKING:
    from services.shell.runner import Runner

PATIENT = (Closed, StepApplied, ShardsSwapped)
"""Facts of every step that another fact soon follows, and on which no hold is armed: they may travel with the next."""


def apply_request(runner: Runner, request: pb.ControlResponse) -> None:
    """Do what the driver wants. What we do not know (a newer driver) is an error."""
    body = request.WhichOneof("body")
    if body == "directory":
        runner.directory({entry.role: entry.address for entry in request.directory.roles})
    elif body == "arm_hold":
        hold = request.arm_hold
        runner.host.arm(Hold(hold.name, runner.options.role, hold.step, hold.phase, hold.chunk, hold.stand))
        runner.tell_driver(hold_answer(hold.name, pb.HOLD_STATE_ARMED))
    elif body == "release_hold":
        runner.release(request.release_hold.name)
    elif body == "freeze_timers":
        runner.clock.freeze()
    elif body == "thaw_timers":
        runner.clock.thaw()
    elif body == "shutdown":
        runner.shut_down(request.shutdown.reason)
    else:
        raise ValueError(f"the driver wants {body!r}, which this role does not know")


def hold_answer(name: str, state: pb.HoldState.ValueType) -> pb.ControlRequest:
    """The hold is armed, or reached."""
    return pb.ControlRequest(hold_answer=pb.HoldAnswer(name=name, state=state))


def fact_observed(fact: Fact, sequence: int) -> pb.FactObserved:
    """A fact, without its arrays."""
    numbered = fact_to_numbered(fact, sequence)
    return pb.FactObserved(sequence=sequence, kind=numbered.kind, body_json=numbered.body_json)


def record_count(recorded: int, unstored: int) -> pb.ControlRequest:
    """How much evidence there is."""
    return pb.ControlRequest(record_count=pb.RecordCount(recorded=recorded, unstored=unstored))


def role_stopped(condition: str, reason: str, recorded: int, unstored: int) -> pb.ControlRequest:
    """The role is over."""
    return pb.ControlRequest(
        role_stopped=pb.RoleStopped(condition=condition, reason=reason, recorded=recorded, unstored=unstored)
    )
