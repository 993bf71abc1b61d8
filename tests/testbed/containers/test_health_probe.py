"""The image's health check against a real gRPC health service."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc
from grpc_health.v1.health import HealthServicer

from testbed.containers.health_probe import TARGET_VARIABLE, main, why_unhealthy


@pytest.mark.parametrize(
    ("status", "why"),
    [(health_pb2.HealthCheckResponse.SERVING, ""), (health_pb2.HealthCheckResponse.NOT_SERVING, "NOT_SERVING")],
)
def test_it_says_what_the_service_says(status: int, why: str, capsys: pytest.CaptureFixture[str]) -> None:
    servicer = HealthServicer()
    servicer.set("", status)
    server = grpc.server(ThreadPoolExecutor(1))
    health_pb2_grpc.add_HealthServicer_to_server(servicer, server)
    target = f"127.0.0.1:{server.add_insecure_port('127.0.0.1:0')}"
    server.start()
    try:
        assert why_unhealthy(target, 2.0) == why
        assert main([target], {}) == main([], {TARGET_VARIABLE: target}) == (1 if why else 0)
        assert capsys.readouterr().out.splitlines() == [f"{target}: {why or 'serving'}"] * 2
    finally:
        server.stop(None)


def test_nobody_there() -> None:
    assert why_unhealthy("127.0.0.1:1", 2.0).startswith("UNAVAILABLE")
