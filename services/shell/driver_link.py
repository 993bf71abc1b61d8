"""The driver's side of the control links: which launches are connected, what they tell, what they are told.

    server = DriverServer(run_id, token)
    await server.start()                         # roles are started with --driver server.address
    role, launch, thing = await server.next()    # RoleConnected, HoldArmed, HoldReached, FactSeen, Counted, …
    await server.arm(hold)                       # holds first: a role handles nothing before its first directory
    server.publish({"coordinator": "127.0.0.1:40123", …})

All of it belongs to one asyncio loop. Duty of the caller: on every `RoleConnected`, arm that role's holds and then
publish the directory; take what `next` gives, in order, without long pauses.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any

import grpc
import structlog
from google.protobuf.message import DecodeError

from services.fact_codec import fact_from_numbered
from services.host import Hold
from services.messages import Numbered
from services.records import Fact
from services.shell.channel import CONTROL_METHOD, server_options, why_refused
from services.shell.options import TransportOptions
from services.shell.stream import ADMITTED, ServerStream, StreamBroken
from services.wire import control_pb2 as pb
from services.wire_error import WireError
from training.errors import ConfigurationError, GradstormError

_HELLO_S = 2.0


@dataclass(frozen=True, slots=True)
class RoleConnected:
    """The process is up and listens at `address`. `again`: the same launch, after its control link broke."""

    address: str
    pid: int
    numerics: str
    again: bool


@dataclass(frozen=True, slots=True)
class HoldReached:
    """The role stands at the hold of this name (or has passed it, when it was not to stand)."""

    hold: str


@dataclass(frozen=True, slots=True)
class FactSeen:
    """A fact that the role recorded, its arrays left out."""

    sequence: int
    fact: Fact


@dataclass(frozen=True, slots=True)
class Counted:
    """Number of the role's last record so far, and how many the verifier has not stored."""

    recorded: int
    unstored: int


@dataclass(frozen=True, slots=True)
class RoleEnded:
    """The role is done. condition: "finished" | "crashed" | "shutdown" | "orphaned" | the name of what stopped it."""

    condition: str
    reason: str
    recorded: int
    unstored: int


@dataclass(frozen=True, slots=True)
class RoleGone:
    """The control link broke: the process died, or it will be back."""

    why: str


@dataclass(frozen=True, slots=True)
class LinkSeen:
    """What came from one peer: frames and their bytes, new connections, and how long each heartbeat was on its way."""

    frames: int
    size_bytes: int
    begun: int
    delays_ms: tuple[float, ...]


@dataclass(frozen=True, slots=True)
class LinksSeen:
    """What came in over the role's links in the `window_ms` up to now, by peer; nothing came from whoever is absent."""

    window_ms: float
    links: dict[str, LinkSeen]


Thing = RoleConnected | HoldReached | FactSeen | Counted | LinksSeen | RoleEnded | RoleGone


class DriverError(GradstormError):
    """A role could not be told something: it is not connected, or did not answer in time."""


class _Connection:
    """One control stream of one launch."""

    def __init__(self, hello: pb.RoleHello, stream: ServerStream) -> None:
        self.role = hello.role
        self.launch = hello.launch
        self.address = hello.address
        self.process = (hello.address, hello.pid)
        self.outbox: asyncio.Queue[pb.ControlResponse] = asyncio.Queue()
        self.armed: dict[str, asyncio.Future[None]] = {}
        self.stream = stream


class DriverServer:
    """Serves the control service for the roles of one run."""

    def __init__(
        self,
        run_id: str,
        token: str,
        listen: str = "127.0.0.1:0",
        transport: TransportOptions | None = None,
        log: Any = None,
    ) -> None:
        self._run_id = run_id
        self._token = token
        self._log = (log or structlog.get_logger()).bind(run=run_id, role="driver")
        self._things: asyncio.Queue[tuple[str, int, Thing]] = asyncio.Queue()
        self._connections: dict[str, _Connection] = {}
        self._newest: dict[str, int] = {}
        self._directory: dict[str, str] | None = None
        self._informed: set[tuple[str, int]] = set()  # launches that have had a directory
        self._server = grpc.aio.server(options=server_options(transport or TransportOptions()))
        service, name = CONTROL_METHOD.split("/")[1:]
        method: Any = grpc.stream_stream_rpc_method_handler(self._control)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        self.address = self._bind(listen)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        """End all control links; a role that is still there ends by itself after a while."""
        await self._server.stop(grace=0.1)

    async def next(self) -> tuple[str, int, Thing]:
        """Wait for the next thing that a role says, or that happened to its link: (role, launch, thing)."""
        return await self._things.get()

    @property
    def connected(self) -> dict[str, int]:
        """Role -> launch, of the control links that are up."""
        return {role: connection.launch for role, connection in sorted(self._connections.items())}

    @property
    def addresses(self) -> dict[str, str]:
        """Role -> where its connected launch listens."""
        return {role: connection.address for role, connection in sorted(self._connections.items())}

    # ------------------------------------------------------------ what roles are told

    def publish(self, directory: dict[str, str]) -> None:
        """Tell every connected role where the others listen; replaces what they were told before."""
        self._directory = dict(directory)
        for connection in self._connections.values():
            self._informed.add((connection.role, connection.launch))
            connection.outbox.put_nowait(_directory(directory))

    async def arm(self, hold: Hold, timeout_s: float = 5.0) -> None:
        """Arm the hold and wait until the role has it. Raises DriverError when it is not there or says nothing."""
        connection = self._connection(hold.role)
        answer = connection.armed.setdefault(hold.name, asyncio.get_running_loop().create_future())
        arm = pb.ArmHold(name=hold.name, step=hold.step, phase=hold.phase, chunk=hold.chunk, stand=hold.stand)
        connection.outbox.put_nowait(pb.ControlResponse(arm_hold=arm))
        try:
            async with asyncio.timeout(timeout_s):
                await asyncio.shield(answer)
        except TimeoutError:
            raise DriverError(f"{hold.role} did not arm hold {hold.name} within {timeout_s:g} s") from None
        finally:
            connection.armed.pop(hold.name, None)

    def release(self, role: str, hold: str) -> None:
        """Let the role go on from the hold, or disarm it. Raises DriverError when the role is not connected."""
        self._tell(role, pb.ControlResponse(release_hold=pb.ReleaseHold(name=hold)))

    def freeze(self, role: str) -> None:
        """Let the role's clock and timers stand still. Raises DriverError when the role is not connected."""
        self._tell(role, pb.ControlResponse(freeze_timers=pb.FreezeTimers()))

    def thaw(self, role: str) -> None:
        """Let the role's clock go on. Raises DriverError when the role is not connected."""
        self._tell(role, pb.ControlResponse(thaw_timers=pb.ThawTimers()))

    def shutdown(self, role: str, reason: str) -> None:
        """Ask the role to flush its records and exit. Raises DriverError when the role is not connected."""
        self._tell(role, pb.ControlResponse(shutdown=pb.Shutdown(reason=reason)))

    # ------------------------------------------------------------ inside

    def _bind(self, listen: str) -> str:
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise ConfigurationError(f"the driver cannot listen on {listen}: {error}") from error
        return f"{listen.rpartition(':')[0]}:{port}"

    def _connection(self, role: str) -> _Connection:
        if role not in self._connections:
            raise DriverError(f"{role} is not connected; connected are: {', '.join(self.connected) or 'none'}")
        return self._connections[role]

    def _tell(self, role: str, response: pb.ControlResponse) -> None:
        self._connection(role).outbox.put_nowait(response)

    async def _control(self, _requests: Any, context: Any) -> None:
        """Handler of one control stream."""
        why = why_refused(self._run_id, self._token, context.invocation_metadata())
        if why:
            self._log.warning("stranger refused", remote=context.peer(), why=why)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        await context.send_initial_metadata(ADMITTED)
        stream = ServerStream(context)
        try:
            connection = await self._hello(stream)
        except (StreamBroken, WireError, TimeoutError, DecodeError) as error:
            self._log.warning("caller refused", remote=context.peer(), why=str(error) or "said nothing")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error) or "said nothing")
            return
        writer = asyncio.get_running_loop().create_task(self._write_all(connection))
        why = "cancelled"
        try:
            await self._read_all(connection)
        except (StreamBroken, WireError, DecodeError) as error:
            why = str(error)
        finally:
            writer.cancel()
            self._gone(connection, why)

    async def _hello(self, stream: ServerStream) -> _Connection:
        async with asyncio.timeout(_HELLO_S):
            request = pb.ControlRequest.FromString(await stream.read())
            if request.WhichOneof("body") != "hello" or not request.hello.role:
                raise WireError("no hello", stream.remote)
            hello = request.hello
            if hello.launch < self._newest.get(hello.role, 0):
                raise WireError(f"launch {hello.launch} was replaced by {self._newest[hello.role]}", hello.role)
            there = self._connections.get(hello.role)
            if there is not None and there.launch == hello.launch and there.process != (hello.address, hello.pid):
                raise WireError(f"launch {hello.launch} is another process already, at {there.address}", hello.role)
            await stream.write(pb.ControlResponse(accepted=pb.Accepted()).SerializeToString())
        return self._registered(_Connection(hello, stream), hello)

    def _registered(self, connection: _Connection, hello: pb.RoleHello) -> _Connection:
        role, launch = connection.role, connection.launch
        again = self._newest.get(role) == launch
        self._newest[role] = launch
        if (old := self._connections.pop(role, None)) is not None:
            self._things.put_nowait((role, old.launch, RoleGone("replaced by a newer control link")))
        self._connections[role] = connection
        if self._directory is not None and (role, launch) in self._informed:
            connection.outbox.put_nowait(_directory(self._directory))
        thing = RoleConnected(hello.address, hello.pid, hello.numerics, again)
        self._things.put_nowait((role, launch, thing))
        return connection

    def _gone(self, connection: _Connection, why: str) -> None:
        if self._connections.get(connection.role) is connection:
            del self._connections[connection.role]
            self._things.put_nowait((connection.role, connection.launch, RoleGone(why)))

    async def _write_all(self, connection: _Connection) -> None:
        while True:
            response = await connection.outbox.get()
            try:
                await connection.stream.write(response.SerializeToString())
            except StreamBroken:
                return  # the reader notices as well and tells of it

    async def _read_all(self, connection: _Connection) -> None:
        while True:
            request = pb.ControlRequest.FromString(await connection.stream.read())
            for thing in self._things_in(connection, request):
                self._things.put_nowait((connection.role, connection.launch, thing))

    def _things_in(self, connection: _Connection, request: pb.ControlRequest) -> list[Thing]:
        match request.WhichOneof("body"):
            case "hold_answer" if request.hold_answer.state == pb.HOLD_STATE_ARMED:
                if (answer := connection.armed.get(request.hold_answer.name)) is not None and not answer.done():
                    answer.set_result(None)
                return []
            case "hold_answer":
                return [HoldReached(request.hold_answer.name)]
            case "facts_observed":
                return [_fact_seen(seen, connection.role) for seen in request.facts_observed.facts]
            case "record_count":
                return [Counted(request.record_count.recorded, request.record_count.unstored)]
            case "links_seen":
                return [_links_seen(request.links_seen)]
            case "role_stopped":
                end = request.role_stopped
                return [RoleEnded(end.condition, end.reason, end.recorded, end.unstored)]
        raise WireError(f"{request.WhichOneof('body')} where it cannot be", connection.role)


def _directory(addresses: dict[str, str]) -> pb.ControlResponse:
    roles = [pb.RoleAddress(role=role, address=address) for role, address in sorted(addresses.items())]
    return pb.ControlResponse(directory=pb.Directory(roles=roles))


def _fact_seen(seen: pb.FactObserved, role: str) -> FactSeen:
    return FactSeen(seen.sequence, fact_from_numbered(Numbered(seen.sequence, seen.kind, seen.body_json), role))


def _links_seen(seen: pb.LinksSeen) -> LinksSeen:
    links = {one.peer: LinkSeen(one.frames, one.size_bytes, one.begun, tuple(one.delays_ms)) for one in seen.links}
    return LinksSeen(seen.window_us / 1000.0, links)
