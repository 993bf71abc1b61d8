"""The listening side of a role: the link service, the standard health service, and who is refused at the door."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import grpc
from google.protobuf.message import DecodeError
from google.protobuf.message_factory import GetMessageClass
from grpc_health.v1 import health_pb2
from grpc_health.v1.health import aio as health_aio

from services.codec import decode, encode
from services.frames import Hello
from services.shell.channel import LINK_METHOD, server_options, why_refused
from services.shell.options import ShellOptions
from services.shell.stream import ADMITTED, ServerStream, StreamBroken
from services.shell.switchboard import Switchboard
from services.wire_error import WireError
from training.errors import ConfigurationError

UNREADABLE = "(a question that cannot be read)"
LINK_SERVICE = LINK_METHOD.split("/")[1]


class RoleServer:
    """Binds at once (`address` is known then), serves after `open`."""

    def __init__(self, options: ShellOptions, board: Switchboard, log: Any) -> None:
        self._options = options
        self._board = board
        self._log = log
        self._opened = asyncio.Event()
        self._health = health_aio.HealthServicer()
        self._server = grpc.aio.server(options=server_options(options.transport))
        method: Any = grpc.stream_stream_rpc_method_handler(self._link)  # bytes in, bytes out
        handler = grpc.method_handlers_generic_handler(LINK_SERVICE, {LINK_METHOD.split("/")[2]: method})
        self._server.add_generic_rpc_handlers((handler, _health_handler(self._health)))
        self.address = self._bind(options.listen)

    async def start(self) -> None:
        await self._set_health(health_pb2.HealthCheckResponse.NOT_SERVING)
        await self._server.start()

    async def open(self) -> None:
        """From now on callers are let in."""
        self._opened.set()
        await self._set_health(health_pb2.HealthCheckResponse.SERVING)

    async def stop(self) -> None:
        await self._server.stop(grace=0.2)

    def _bind(self, listen: str) -> str:
        host, _, _ = listen.rpartition(":")
        try:
            port = self._server.add_insecure_port(listen)
        except RuntimeError as error:
            raise ConfigurationError(f"{self._options.role} cannot listen on {listen}: {error}") from error
        return f"{host}:{port}"

    async def _set_health(self, status: Any) -> None:
        for service in ("", LINK_SERVICE):
            await self._health.set(service, status)

    async def _link(self, _requests: Any, context: Any) -> None:
        """Handler of one inbound stream: token, handshake, then the link until it ends."""
        why = why_refused(self._options.run_id, self._options.token, context.invocation_metadata())
        if why:
            self._log.warning("stranger refused", remote=context.peer(), why=why)
            await context.abort(grpc.StatusCode.UNAUTHENTICATED, why)
        await context.send_initial_metadata(ADMITTED)  # the caller says nothing before it knows that it is welcome
        await self._opened.wait()
        stream = ServerStream(context)
        try:
            hello = await self._shake_hands(stream)
        except (StreamBroken, WireError, TimeoutError) as error:
            self._log.warning("caller refused", remote=context.peer(), why=str(error) or "said nothing")
            await context.abort(grpc.StatusCode.PERMISSION_DENIED, str(error) or "said nothing")
            return
        await self._carry(stream, hello, context)

    async def _shake_hands(self, stream: ServerStream) -> Hello:
        async with asyncio.timeout(self._options.transport.hello_ms / 1000.0):
            hello = decode(await stream.read(), stream.remote)
            if not isinstance(hello, Hello):
                raise WireError(f"{type(hello).__name__} before Hello", stream.remote)
            if why := self._board.why_not(hello):
                raise WireError(why, hello.role)
            await stream.write(encode(self._board.hello_to(hello.role)))
        return hello

    async def _carry(self, stream: ServerStream, hello: Hello, context: Any) -> None:
        link = asyncio.get_running_loop().create_task(self._board.accept(stream, hello))
        link.add_done_callback(self._board.task_ended)
        try:
            await asyncio.wait((link, stream.closed), return_when=asyncio.FIRST_COMPLETED)
        finally:
            link.cancel()  # the stream is over for us, whatever still hangs in it
            await asyncio.wait((link,))
        await context.abort(grpc.StatusCode.ABORTED, stream.closed.result() if stream.closed.done() else "link ended")


def _health_handler(servicer: Any) -> Any:
    """The standard health service. It needs no token, so bytes that are no question must do no harm, not even a
    traceback in the log: they ask for a service that nobody has.
    """
    service = health_pb2.DESCRIPTOR.services_by_name["Health"]
    handlers = {}
    for method in service.methods:
        if method.name not in vars(type(servicer)):
            continue  # its base class would answer with a traceback in our log
        make: Any = (
            grpc.unary_stream_rpc_method_handler if method.server_streaming else grpc.unary_unary_rpc_method_handler
        )
        asked, told = GetMessageClass(method.input_type), GetMessageClass(method.output_type)
        handlers[method.name] = make(getattr(servicer, method.name), _reader(asked), told.SerializeToString)
    return grpc.method_handlers_generic_handler(service.full_name, handlers)


def _reader(kind: Any) -> Callable[[bytes], Any]:
    def read(data: bytes) -> Any:
        try:
            return kind.FromString(data)
        except DecodeError:
            return kind(service=UNREADABLE) if "service" in kind.DESCRIPTOR.fields_by_name else kind()

    return read
