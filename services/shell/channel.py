"""How connections are made: options of channels and servers, the metadata that goes with every call."""

from __future__ import annotations

import hmac

import grpc

from services.shell.options import ShellOptions, TransportOptions

LINK_METHOD = "/gradstorm.v1.LinkService/Link"
CONTROL_METHOD = "/gradstorm.v1.ControlService/Control"
RUN_KEY = "gradstorm-run"
TOKEN_KEY = "gradstorm-token"
_SLACK_BYTES = 1024  # a gRPC message is a little larger than the frame that it carries

Metadata = tuple[tuple[str, str], ...]
GrpcOptions = list[tuple[str, int | str]]


def call_metadata(run_id: str, token: str) -> Metadata:
    """What proves to the other side that this call belongs to the run."""
    return ((RUN_KEY, run_id), (TOKEN_KEY, token))


def why_refused(run_id: str, token: str, metadata: object) -> str:
    """Why a call with this metadata is a stranger's; empty when it is not. Takes the same time for every token."""
    given = {str(key): str(value) for key, value in metadata or ()}  # type: ignore[attr-defined]
    same_token = hmac.compare_digest(given.get(TOKEN_KEY, "").encode(), token.encode())
    if not same_token:
        return "wrong token" if TOKEN_KEY in given else "no token"
    return "" if given.get(RUN_KEY) == run_id else "another run"


def channel_options(transport: TransportOptions) -> GrpcOptions:
    """Options of a channel that dials. Each channel has its own connection, and never goes through a web proxy."""
    return [
        ("grpc.use_local_subchannel_pool", 1),
        ("grpc.enable_http_proxy", 0),
        ("grpc.enable_retries", 0),
        ("grpc.initial_reconnect_backoff_ms", 100),
        ("grpc.min_reconnect_backoff_ms", 100),
        ("grpc.max_reconnect_backoff_ms", 500),
        ("grpc.keepalive_permit_without_calls", 1),
        ("grpc.http2.max_pings_without_data", 0),
        *_common(transport),
    ]


def server_options(transport: TransportOptions) -> GrpcOptions:
    """Options of a server; accepts pings at the rate at which our channels send them; a busy port is an error."""
    return [
        ("grpc.so_reuseport", 0),
        ("grpc.max_connection_idle_ms", int(transport.idle_ms)),
        ("grpc.http2.min_recv_ping_interval_without_data_ms", int(transport.ping_ms / 2)),
        ("grpc.http2.max_ping_strikes", 0),
        *_common(transport),
    ]


def _common(transport: TransportOptions) -> GrpcOptions:
    bytes_max, ping_ms = transport.frame_bytes_max + _SLACK_BYTES, int(transport.ping_ms)
    return [
        ("grpc.max_send_message_length", bytes_max),
        ("grpc.max_receive_message_length", bytes_max),
        ("grpc.keepalive_time_ms", ping_ms),
        ("grpc.keepalive_timeout_ms", ping_ms),
        ("grpc.http2.ping_timeout_ms", ping_ms),  # without it a blackhole goes unnoticed for a minute
    ]


def new_channel(address: str, options: ShellOptions) -> grpc.aio.Channel:
    """A channel of its own to `address` ("host:port")."""
    return grpc.aio.insecure_channel(address, options=channel_options(options.transport))
