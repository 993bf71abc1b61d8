"""The listening end of an attachment: a host that waits for the driver of a run, checks it, and serves it.

    server = AttachServer(claim, token, "10.0.0.2:7070", open_session)
    await server.start()
    await server.ended        # the driver has let the host go (""), or was lost (why)

`open_session(hello, run_id, stream)` is called once the identity is checked; what it raises (GradstormError) refuses
the driver. Its `run` returns when the driver detaches and raises StreamBroken when it is lost. One driver at a time; a
stranger is refused and logged, and the host goes on waiting.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any, Protocol

import grpc

from services.identity import Claim, Offer, why_not_attached
from services.shell.attach_frames import (
    Attached,
    AttachHello,
    HostClaim,
    read_request,
    response_bytes,
)
from services.shell.channel import RUN_KEY, server_options, why_refused
from services.shell.options import TransportOptions
from services.shell.stream import ADMITTED, ServerStream, StreamBroken
from services.wire_error import WireError
from training.errors import ConfigurationError, GradstormError

ATTACH_METHOD = "/gradstorm.v1.AttachService/Attach"
_HELLO_S = 20.0  # a loaded machine is slow


class Session(Protocol):
    """One driver being served."""

    async def run(self) -> None:
        """Until the driver detaches."""
        ...


OpenSession = Callable[[AttachHello, str, ServerStream], Session]


class AttachServer:
    """Belongs to one asyncio loop. `generation` is the newest that the served run has had; the caller keeps it."""

    def __init__(self, claim: Claim, token: str, listen: str, open_session: OpenSession, log: Any) -> None:
        self._claim = claim
        self._token = token
        self._open_session = open_session
        self._log = log
        self._serving = ""  # the run that is being served
        self.generation = 0
        self.ended: asyncio.Future[str] = asyncio.get_running_loop().create_future()
        self._server = grpc.aio.server(options=server_options(TransportOptions()))
        service, name = ATTACH_METHOD.split("/")[1:]
        method: Any = grpc.stream_stream_rpc_method_handler(self._attach)
        self._server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {name: method}),))
        self.address = self._bind(listen)

    async def start(self) -> None:
        await self._server.start()

    async def stop(self) -> None:
        await self._server.stop(grace=0.2)

    def _bind(self, listen: str) -> str:
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise ConfigurationError(f"{self._claim.role} cannot listen on {listen}: {error}") from error
        return f"{listen.rpartition(':')[0]}:{port}"

    async def _attach(self, _requests: Any, context: Any) -> None:
        """Handler of one driver's stream."""
        given = {str(key): str(value) for key, value in context.invocation_metadata() or ()}
        run_id = self._claim.run_id or given.get(RUN_KEY, "")
        if why := why_refused(run_id, self._token, context.invocation_metadata()):
            await self._refuse(context, grpc.StatusCode.UNAUTHENTICATED, why)
        if self._serving:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, f"attached already, to {self._serving}")
        self._serving = run_id
        try:
            await context.send_initial_metadata(ADMITTED)
            stream = ServerStream(context)
            await self._carry(await self._shake_hands(stream, run_id, context), run_id)
        except (StreamBroken, TimeoutError, WireError) as error:
            self._log.warning("driver lost", remote=context.peer(), why=str(error) or "said nothing")
        finally:
            self._serving = ""

    async def _shake_hands(self, stream: ServerStream, run_id: str, context: Any) -> Session:
        claim = self._claim
        async with asyncio.timeout(_HELLO_S):
            await stream.write(response_bytes(HostClaim(claim.role, claim.cut, claim.version)))
            hello = read_request(await stream.read(), stream.remote)
        if not isinstance(hello, AttachHello):
            raise WireError(f"{type(hello).__name__} before AttachHello", stream.remote)
        offer = Offer(hello.role, hello.cut, hello.model_sha256, run_id, hello.version, hello.generation)
        why = why_not_attached(claim, offer, self.generation)
        try:
            session = None if why else self._open_session(hello, run_id, stream)
        except GradstormError as error:
            session, why = None, str(error)
        if session is None:
            await self._refuse(context, grpc.StatusCode.FAILED_PRECONDITION, why)
        assert session is not None
        await stream.write(response_bytes(Attached()))
        self._log.info("attached", to=run_id, as_role=hello.role, remote=context.peer())
        return session

    async def _carry(self, session: Session, run_id: str) -> None:
        try:
            await session.run()
        except (StreamBroken, WireError, asyncio.CancelledError) as error:  # gRPC cancels us when the call breaks
            self._end(f"lost the driver of {run_id}: {error or 'the call is broken'}")
            raise
        except Exception as error:
            self._log.error("crashed", exc_info=error)
            self._end(f"{type(error).__name__}: {error}")
            raise
        self._end("")

    def _end(self, why: str) -> None:
        if not self.ended.done():
            self.ended.set_result(why)

    async def _refuse(self, context: Any, code: Any, why: str) -> None:
        self._log.warning("driver refused", remote=context.peer(), why=why)
        await context.abort(code, why)  # raises
