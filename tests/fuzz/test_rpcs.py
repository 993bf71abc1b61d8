"""Every RPC of every service under fuzz, over real sockets, while training goes on: nobody falls, hangs, tells where in
our code something happened, or grows.

The RPCs are taken from the descriptors: one that is added and not fuzzed here fails `test_every_rpc_is_fuzzed`.
"""

from __future__ import annotations

import importlib
import pkgutil
import re
from collections.abc import Iterator

import pytest
from grpc_health.v1 import health_pb2
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from services import wire
from services.codec import encode
from services.frames import Hello
from services.shell.attach_frames import AttachHello, FilePart, LaunchSignal, SignalLaunch, StartLaunch, request_bytes
from services.shell.attach_server import ATTACH_METHOD
from services.shell.channel import CONTROL_METHOD, LINK_METHOD
from services.wire import control_pb2 as pb
from tests.fuzz.drawn import FRAMES, NAMES, WORDS, instance_of
from tests.fuzz.siege import ROLES, Siege

EXAMPLES = 120
WARM_UP = 40
GROWTH_MIB_MAX = 24.0  # a run's own history grows, too
FUZZ = settings(max_examples=EXAMPLES, phases=(Phase.generate,))
OUR_CODE = re.compile(r"Traceback|\.py\b|line \d+|Error\(|Unexpected <class")

# ---------------------------------------------------------------- which RPCs there are


def rpcs() -> set[str]:
    """Full method names of every service in the project's descriptors, and of the health service that roles serve."""
    modules = [importlib.import_module(f"services.wire.{found.name}") for found in pkgutil.iter_modules(wire.__path__)]
    files = [module.DESCRIPTOR for module in modules if hasattr(module, "DESCRIPTOR")] + [health_pb2.DESCRIPTOR]
    services = [service for file in files for service in file.services_by_name.values()]
    return {f"/{service.full_name}/{method.name}" for service in services for method in service.methods}


HEALTH_METHODS = tuple(sorted(name for name in rpcs() if name.startswith("/grpc.health.v1.")))
FUZZED = {LINK_METHOD, CONTROL_METHOD, ATTACH_METHOD, *HEALTH_METHODS}


def test_every_rpc_is_fuzzed() -> None:
    assert rpcs() == FUZZED
    assert {"/grpc.health.v1.Health/Check", "/grpc.health.v1.Health/Watch"} <= set(HEALTH_METHODS)


# ---------------------------------------------------------------- what is said


@st.composite
def damaged(draw: st.DrawFn, good: st.SearchStrategy[bytes]) -> bytes:
    """Bytes that were once in order."""
    data = bytearray(draw(good))
    for _ in range(draw(st.integers(1, 3))):
        at = draw(st.integers(0, len(data)))
        how = draw(st.sampled_from(("set", "cut", "insert", "end")))
        if how == "set" and at < len(data):
            data[at] = draw(st.integers(0, 255))
        elif how == "cut":
            del data[at : at + draw(st.integers(1, 20))]
        elif how == "insert":
            data[at:at] = draw(st.binary(max_size=8))
        else:
            del data[at:]
    return bytes(data)


def encoded(frame: object) -> bytes:
    return encode(frame)  # type: ignore[arg-type]


GOOD = FRAMES.map(encoded)
pytestmark = pytest.mark.xdist_group("siege")  # one for all of them, and in this order
SAID = st.lists(st.one_of(GOOD, damaged(GOOD), st.binary(max_size=300)), max_size=5)
# Whoever calls itself the coordinator, the driver or the verifier may end a role, in order, and a newer launch of a
# member shuts the older one out: not in this test.
STRANGERS = st.sampled_from(("worker-1", "worker-2", "worker-3", "worker-99", "server", "shard-1", "nobody", "\n"))


def introductions(target: str) -> st.SearchStrategy[bytes]:
    """Of anybody to somebody else, of strangers to this one, and none at all."""
    others = st.sampled_from(NAMES).filter(lambda name: name != target)
    return st.one_of(
        st.builds(Hello, st.sampled_from(NAMES), st.integers(0, 3), st.integers(0, 4), others).map(encoded),
        st.builds(Hello, STRANGERS, st.integers(0, 1), st.integers(0, 4), st.just(target)).map(encoded),
        damaged(GOOD),
        st.just(b""),
    )


def honest_hello(target: str) -> st.SearchStrategy[bytes]:
    """One that is let in."""
    callers = STRANGERS.filter(lambda name: name != target)
    return st.builds(Hello, callers, st.just(1), st.integers(0, 3), st.just(target)).map(encoded)


SERVICE_NAMES = st.sampled_from(("", "gradstorm.v1.LinkService", "nobody", *NAMES)).map(
    lambda name: health_pb2.HealthCheckRequest(service=name).SerializeToString()
)


@pytest.fixture(scope="module")
def siege(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Siege]:
    besieged = Siege(tmp_path_factory.mktemp("siege"))
    try:
        besieged.begin()
        yield besieged
    finally:
        besieged.close()


class Watch:
    """Counts examples, and holds the memory of a role (of this process: the driver's) against what it was before."""

    def __init__(self, siege: Siege, role: str) -> None:
        self.siege, self.role = siege, role
        self.count = 0
        self.before_mib = 0.0

    def after(self, ended: str) -> None:
        assert OUR_CODE.search(ended) is None, ended
        process = self.siege.processes.get(self.role)
        assert process is None or process.poll() is None, self.siege.log_tails()
        self.count += 1
        if self.count % WARM_UP == 0:
            self.siege.check_alive(self.role)
        if self.count == WARM_UP:
            self.before_mib = self.siege.rss_mib(self.role)

    def finish(self) -> None:
        self.siege.check_alive(self.role)
        grown = self.siege.rss_mib(self.role) - self.before_mib
        assert self.count >= EXAMPLES // 2
        assert grown < GROWTH_MIB_MAX, f"{self.role} grew by {grown:.1f} MiB in {self.count - WARM_UP} attacks"


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("role", ROLES)
def test_links(role: str, siege: Siege) -> None:
    watch = Watch(siege, role)

    @FUZZ
    @given(first=st.one_of(honest_hello(role), honest_hello(role), introductions(role)), said=SAID)
    def attack(first: bytes, said: list[bytes]) -> None:
        watch.after(siege.say(role, LINK_METHOD, [first, *said]))

    attack()
    watch.finish()
    siege.wait_for_steps(2)


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(600)
@pytest.mark.parametrize("method", HEALTH_METHODS)
def test_health(method: str, siege: Siege) -> None:
    watch = Watch(siege, "worker-1")

    @FUZZ
    @given(said=st.one_of(st.binary(max_size=300), SERVICE_NAMES))
    def attack(said: bytes) -> None:
        watch.after(siege.ask(watch.role, method, said))

    attack()
    watch.finish()


def control_message() -> st.SearchStrategy[bytes]:
    """What a role could tell its driver, and what none would."""
    numbers, words = st.one_of(st.integers(0, 4), st.just(2**63 - 1)), st.sampled_from(WORDS)
    hellos = st.builds(pb.RoleHello, role=words, launch=st.integers(0, 1), address=words, pid=st.integers(0, 9))
    facts = st.builds(pb.FactObserved, sequence=numbers, kind=words, body_json=words)
    counts = st.builds(pb.RecordCount, recorded=numbers, unstored=numbers)
    answers = st.builds(pb.HoldAnswer, name=words, state=st.integers(0, 3))
    ends = st.builds(pb.RoleStopped, condition=words, reason=words, recorded=numbers, unstored=numbers)
    return st.one_of(
        hellos.map(lambda one: pb.ControlRequest(hello=one)),
        st.lists(facts, max_size=3).map(lambda some: pb.ControlRequest(facts_observed=pb.FactsObserved(facts=some))),
        counts.map(lambda one: pb.ControlRequest(record_count=one)),
        answers.map(lambda one: pb.ControlRequest(hold_answer=one)),
        ends.map(lambda one: pb.ControlRequest(role_stopped=one)),
    ).map(lambda request: request.SerializeToString())


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_control(siege: Siege) -> None:
    watch = Watch(siege, "driver")
    good = control_message()

    @FUZZ
    @given(said=st.lists(st.one_of(good, good, damaged(good), st.binary(max_size=300)), max_size=5))
    def attack(said: list[bytes]) -> None:
        watch.after(siege.say("driver", CONTROL_METHOD, said))

    attack()
    watch.finish()
    siege.wait_for_steps(2)


def attach_request() -> st.SearchStrategy[bytes]:
    """What a driver could tell a host."""
    numbers = st.one_of(st.integers(0, 4), st.just(2**63 - 1))
    requests = [
        instance_of(AttachHello),
        instance_of(FilePart),
        st.builds(StartLaunch, numbers, st.sampled_from(WORDS), numbers),
        st.builds(SignalLaunch, st.sampled_from(LaunchSignal)),
    ]
    return st.one_of(requests).map(request_bytes)


@pytest.mark.local
@pytest.mark.slow
@pytest.mark.timeout(600)
def test_attachments(siege: Siege) -> None:
    watch = Watch(siege, "host")
    good = attach_request()

    @FUZZ
    @given(said=st.lists(st.one_of(good, good, damaged(good), st.binary(max_size=300)), max_size=4))
    def attack(said: list[bytes]) -> None:
        watch.after(siege.say("host", ATTACH_METHOD, said))

    attack()
    watch.finish()


@pytest.mark.local
@pytest.mark.parametrize("token", ["guess", ""])
def test_without_the_token_nothing_is_read_at_all(token: str, siege: Siege) -> None:
    for target, method in (
        *((role, LINK_METHOD) for role in ROLES), ("driver", CONTROL_METHOD), ("host", ATTACH_METHOD),
    ):  # fmt: skip
        ended = siege.say(target, method, [encoded(Hello("worker-1", 1, 1, target))], token)
        assert ended == "UNAUTHENTICATED wrong token"
