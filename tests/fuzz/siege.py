"""A training run of real processes that goes on while a fuzzer, who has the run's token, talks to each of them."""

from __future__ import annotations

import asyncio
import json
import os
import subprocess
import sys
import threading
from collections.abc import Coroutine
from pathlib import Path
from typing import Any, TypeVar

import grpc
import psutil
import structlog
from grpc_health.v1 import health_pb2, health_pb2_grpc

from services.config import RunConfig, Timing
from services.identity import Claim
from services.records import Committed
from services.shell.attach_server import AttachServer, Session
from services.shell.channel import call_metadata
from services.shell.driver_link import DriverServer, FactSeen, RoleConnected
from training.config import BatchConfig, ModelConfig, OptimizerConfig
from training.datasets import DatasetSpec, dataset_to_bytes, load_dataset
from training.errors import ConfigurationError

ROOT = Path(__file__).resolve().parents[2]
ROLES = ("verifier", "coordinator", "server", "worker-1", "worker-2")
DATASET = load_dataset(DatasetSpec("blobs", 1, 23, 4, 3))
ENDLESS = 1_000_000
T = TypeVar("T")


def config(run_id: str) -> RunConfig:
    """A run that does not end by itself, and whose members are back soon after somebody took their place."""
    return RunConfig(
        run_id=run_id, seed=1, strategy="ps", workers=2, steps=ENDLESS, model=ModelConfig("softmax", 4, 3),
        optimizer=OptimizerConfig(0.1, 0.9), batch=BatchConfig("per_worker", 2), dataset_name="blobs",
        dataset_sha256=DATASET.sha256, sample_count=23, checkpoint_every=500,
        timing=Timing(lease_ms=60_000, reconnect_ms=5000, exchange_ms=2000, nobody_ms=600_000),
    )  # fmt: skip


def _nobody(_hello: object, _run_id: str, _stream: object) -> Session:
    raise ConfigurationError("this host takes nobody's word for a run")


class Siege:
    """Beside the roles a host waits for a driver (`gradstorm worker --listen`).

    Duty of the caller: `close` on every way out.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.processes: dict[str, subprocess.Popen[bytes]] = {}
        self.addresses: dict[str, str] = {}
        self.errors: list[dict[str, Any]] = []  # of the driver's, that nobody caught
        self.steps = 0  # committed, as far as the driver has heard
        self._loop = asyncio.new_event_loop()
        self._loop.set_exception_handler(lambda _, context: self.errors.append(context))
        self._thread = threading.Thread(target=self._loop.run_forever)
        self._thread.start()
        self._up = threading.Event()
        self._moved = threading.Condition()

    # ------------------------------------------------------------ up and down

    def begin(self) -> None:
        """Start the driver and every role, and wait until steps are committed."""
        (self.folder / "config.json").write_text(config("siege").to_json(), encoding="utf-8")
        (self.folder / "dataset.safetensors").write_bytes(dataset_to_bytes(DATASET))
        self._do(self._open())
        for role in ROLES:
            self._launch(role)
        assert self._up.wait(60), "not everybody connected"
        self.wait_for_steps(3)

    def close(self) -> None:
        for process in self.processes.values():
            process.kill()
            process.wait(10)
        self._do(self._shut())
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _open(self) -> None:
        self._driver = DriverServer("siege", "secret")
        await self._driver.start()
        self._host = AttachServer(
            Claim("worker", "", "", "", ""), "secret", "127.0.0.1:0", _nobody, structlog.get_logger()
        )
        await self._host.start()
        self.addresses.update(driver=self._driver.address, host=self._host.address)
        self._listener = self._loop.create_task(self._listen())

    async def _shut(self) -> None:
        self._listener.cancel()
        await asyncio.gather(self._listener, return_exceptions=True)
        await self._driver.stop()
        await self._host.stop()

    async def _listen(self) -> None:
        while True:
            role, _, thing = await self._driver.next()
            if isinstance(thing, RoleConnected) and role in self.processes:
                self.addresses.setdefault(role, thing.address)
                if set(ROLES) <= self.addresses.keys():
                    self._driver.publish({name: self.addresses[name] for name in ROLES})
                    self._up.set()
            elif isinstance(thing, FactSeen) and isinstance(thing.fact, Committed):
                with self._moved:
                    self.steps = max(self.steps, thing.fact.step)
                    self._moved.notify_all()

    def _launch(self, role: str) -> None:
        settings: dict[str, Any] = {
            "config": str(self.folder / "config.json"), "dataset": str(self.folder / "dataset.safetensors"),
            "resume": None, "plants": [],
        }  # fmt: skip
        command = [
            sys.executable, "-m", "services.shell", role, "--run-id", "siege", "--folder", str(self.folder),
            "--driver", self.addresses["driver"], "--factory", "testbed.engines.local_cast:make_role",
            "--settings", json.dumps(settings),
        ]  # fmt: skip
        environment = {**os.environ, "GRADSTORM_TOKEN": "secret"}
        with (self.folder / f"{role}.1.log").open("ab") as log:
            self.processes[role] = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=log, stderr=log)

    def _do(self, body: Coroutine[Any, Any, T]) -> T:
        return asyncio.run_coroutine_threadsafe(body, self._loop).result(30)

    # ------------------------------------------------------------ what is seen of it

    def wait_for_steps(self, more: int, timeout_s: float = 180.0) -> None:
        """Wait until so many more steps are committed; fails when the time is over."""
        with self._moved:
            wanted = self.steps + more
            assert self._moved.wait_for(lambda: self.steps >= wanted, timeout_s), self.log_tails()

    def rss_mib(self, role: str) -> float:
        """Memory of the role's process; of this one, in which the driver is."""
        process = psutil.Process(self.processes[role].pid) if role in self.processes else psutil.Process()
        return float(process.memory_info().rss) / 2**20

    def log_tails(self) -> str:
        logs = {role: (self.folder / f"{role}.1.log").read_text(encoding="utf-8") for role in self.processes}
        return "\n".join(f"{role}: {text[-600:]}" for role, text in logs.items())

    def check_alive(self, role: str) -> None:
        """The process is there, answers at its health service, and has logged no error of its own."""
        assert self.errors == [], self.errors
        if role not in self.processes:
            return
        log = (self.folder / f"{role}.1.log").read_text(encoding="utf-8")
        assert self.processes[role].poll() is None, log[-3000:]
        assert '"crashed"' not in log, log[-3000:]
        with grpc.insecure_channel(self.addresses[role]) as channel:
            answer = health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=60)
        assert answer.status == health_pb2.HealthCheckResponse.SERVING

    # ------------------------------------------------------------ talking to it

    def say(self, target: str, method: str, messages: list[bytes], token: str = "secret") -> str:
        """Send these on one stream of bytes, close our half, and read what comes; the end's code and details."""
        metadata = call_metadata("siege", token)
        with grpc.insecure_channel(self.addresses[target]) as channel:
            said: Any = iter(messages)
            call: Any = channel.stream_stream(method)(said, metadata=metadata, timeout=60)
            try:
                for _ in call:
                    pass
            except grpc.RpcError as error:
                return f"{error.code().name} {error.details()}"
            return "OK"

    def ask(self, target: str, method: str, message: bytes) -> str:
        """One question; the first answer's length, or the end's code and details. A stream is left after the first."""
        with grpc.insecure_channel(self.addresses[target]) as channel:
            make: Any = channel.unary_stream if method.endswith("/Watch") else channel.unary_unary
            try:
                answer = make(method)(message, timeout=60)
                first = answer if isinstance(answer, bytes) else next(answer)
                return f"OK {len(first)} bytes"
            except grpc.RpcError as error:
                return f"{error.code().name} {error.details()}"
