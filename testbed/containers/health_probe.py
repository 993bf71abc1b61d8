"""`python -m testbed.containers.health_probe [HOST:PORT]`: the health check of the image, one call to the role in it.

Exit code 0 when the role serves; 1 with one line that says why when it does not. Without an argument it asks
GRADSTORM_HEALTH_TARGET, else this container's own name at port 50051: a role listens on its own address, not on all.
"""

from __future__ import annotations

import os
import socket
import sys
from collections.abc import Mapping

import grpc
from grpc_health.v1 import health_pb2, health_pb2_grpc

TARGET_VARIABLE = "GRADSTORM_HEALTH_TARGET"
ROLE_PORT = 50051
_TIMEOUT_S = 2.0  # below the image's own --timeout, so that the reason is still written


def main(arguments: list[str], environment: Mapping[str, str]) -> int:
    """Ask once; returns the exit code."""
    target = arguments[0] if arguments else environment.get(TARGET_VARIABLE) or f"{socket.gethostname()}:{ROLE_PORT}"
    why = why_unhealthy(target, _TIMEOUT_S)
    sys.stdout.write(f"{target}: {why or 'serving'}\n")
    return 1 if why else 0


def why_unhealthy(target: str, timeout_s: float) -> str:
    """Empty when the role at `target` (HOST:PORT) serves; otherwise the reason."""
    options = [("grpc.enable_http_proxy", 0), ("grpc.enable_retries", 0)]
    with grpc.insecure_channel(target, options=options) as channel:
        try:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=timeout_s)
        except grpc.RpcError as error:
            return f"{error.code().name}: {error.details()}"
    if answer.status == health_pb2.HealthCheckResponse.SERVING:
        return ""
    return str(health_pb2.HealthCheckResponse.ServingStatus.Name(answer.status))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:], os.environ))
