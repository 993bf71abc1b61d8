"""What a driver and a listening host say to each other, as values; on the wire they are proto/…/attach.proto."""

from __future__ import annotations

from dataclasses import dataclass, fields
from enum import IntEnum

from google.protobuf.message import DecodeError

from services.wire import attach_pb2 as pb
from services.wire_error import WireError


class LaunchSignal(IntEnum):
    """What a host can do to the process of its role."""

    KILL = pb.LAUNCH_SIGNAL_KILL
    STOP = pb.LAUNCH_SIGNAL_STOP
    CONTINUE = pb.LAUNCH_SIGNAL_CONTINUE


@dataclass(frozen=True, slots=True)
class HostClaim:
    """Host -> driver, first: what it was started for; "" where nothing was said. `role` may be a kind alone."""

    role: str
    cut: str
    version: str


@dataclass(frozen=True, slots=True)
class AttachHello:
    """Driver -> host: what the host is to be. `resume_run_id` is for the coordinator of a run that goes on."""

    role: str
    generation: int
    model_sha256: str
    cut: str
    config_json: str
    plants: tuple[str, ...]
    evidence: bool
    resume_run_id: str
    version: str


@dataclass(frozen=True, slots=True)
class Attached:
    """Host -> driver: accepted; files and launches may follow."""


@dataclass(frozen=True, slots=True)
class FilePart:
    """Either way: a part of a file of the run folder, in order; the part at offset 0 replaces what was there."""

    path: str
    offset: int
    data: bytes


@dataclass(frozen=True, slots=True)
class StartLaunch:
    """Driver -> host: start this launch of the role; `driver` is where its control link goes."""

    launch: int
    driver: str
    generation: int


@dataclass(frozen=True, slots=True)
class SignalLaunch:
    """Driver -> host."""

    signal: LaunchSignal


@dataclass(frozen=True, slots=True)
class Detach:
    """Driver -> host: the run is over for this host."""


@dataclass(frozen=True, slots=True)
class LaunchExited:
    """Host -> driver: the process is gone, and what it left on the disk was sent. Negative: the signal's number."""

    launch: int
    exit_code: int


@dataclass(frozen=True, slots=True)
class LaunchFailed:
    """Host -> driver: what was asked could not be done."""

    reason: str


Request = AttachHello | FilePart | StartLaunch | SignalLaunch | Detach
Response = HostClaim | Attached | FilePart | LaunchExited | LaunchFailed
_REQUESTS: dict[str, type[Request]] = {
    "hello": AttachHello, "file": FilePart, "start": StartLaunch, "signal": SignalLaunch, "detach": Detach,
}  # fmt: skip
_RESPONSES: dict[str, type[Response]] = {
    "claim": HostClaim, "attached": Attached, "file": FilePart, "exited": LaunchExited, "failed": LaunchFailed,
}  # fmt: skip


def request_bytes(request: Request) -> bytes:
    """For the wire."""
    return _bytes(pb.AttachRequest, _REQUESTS, request)


def response_bytes(response: Response) -> bytes:
    """For the wire."""
    return _bytes(pb.AttachResponse, _RESPONSES, response)


def read_request(data: bytes, source: str) -> Request:
    """Inverse of `request_bytes`. Raises WireError."""
    return _read(pb.AttachRequest, _REQUESTS, data, source)  # type: ignore[no-any-return]


def read_response(data: bytes, source: str) -> Response:
    """Inverse of `response_bytes`. Raises WireError."""
    return _read(pb.AttachResponse, _RESPONSES, data, source)  # type: ignore[no-any-return]


def _bytes(envelope: type, kinds: dict[str, type], frame: object) -> bytes:
    body = next(name for name, kind in kinds.items() if type(frame) is kind)
    message = envelope()
    inside = getattr(message, body)
    inside.SetInParent()
    inside.MergeFrom(type(inside)(**{item.name: getattr(frame, item.name) for item in fields(frame)}))  # type: ignore[arg-type]
    data: bytes = message.SerializeToString()
    return data


def _read(envelope: type, kinds: dict[str, type], data: bytes, source: str):  # type: ignore[no-untyped-def]
    try:
        message = envelope.FromString(data)  # type: ignore[attr-defined]
        body = message.WhichOneof("body")
        kind = kinds[body]
        values = {item.name: getattr(getattr(message, body), item.name) for item in fields(kind)}
        if kind is SignalLaunch:
            values["signal"] = LaunchSignal(values["signal"])
        if kind is AttachHello:
            values["plants"] = tuple(values["plants"])
        return kind(**values)
    except (DecodeError, KeyError, ValueError) as error:
        raise WireError(f"no frame of an attachment: {error}", source) from None
