"""How long a SIGKILL of a worker interrupts training, beside torchelastic."""

from __future__ import annotations

from chaos.fault_kinds.base import TimeTrigger
from chaos.fault_kinds.roles import Kill
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Goal, Peer, figure, times_as_fast
from testbed.bench.local_run import Stopwatch, measured_run, training
from testbed.bench.sizes import B288
from testbed.bench.torch_peer import NOT_FOUND

WORKERS = 4
GOAL = Goal("at_most", 300.0)
TIMEOUT_S = 180.0
_KILLS_AT_MS = (400.0, 1200.0)  # of worker 4, then of worker 3
_STEPS = 1200  # enough for both to fall into the run


def _measure(bench: Bench) -> list[Figure]:
    own_ms: list[float] = []
    peer_ms: list[float] = []
    rounds = 1 if bench.quick else 3
    for number in range(rounds):
        bench.say(f"recovery, round {number + 1} of {rounds}: two kills, then torchelastic")
        own_ms += recovery_ms(measured_run(bench, training(B288, WORKERS, _STEPS, kills())).watch)
        if bench.torch is not None:
            peer_ms += [line["ms"] for line in bench.torch.run("elastic_recovery.py", "4", timeout_s=TIMEOUT_S)]
    name = "recovery.sigkill_to_next_commit"
    if bench.torch is None:
        return [figure(name, own_ms, "ms", goal=GOAL, note=NOT_FOUND)]
    elastic = Peer(f"torch {bench.torch.version} elastic, 4 ranks", peer_ms, "ms")
    return [
        figure(name, own_ms, "ms", goal=GOAL),
        times_as_fast(f"{name}.speed_to_torchelastic", own_ms, elastic),
    ]


def kills() -> tuple[Kill, ...]:
    """Two, by the clock."""
    victims = zip((4, 3), _KILLS_AT_MS, strict=True)
    return tuple(
        Kill(kind="kill", target=f"worker-{worker}", trigger=TimeTrigger(at_ms=at_ms)) for worker, at_ms in victims
    )


def recovery_ms(watch: Stopwatch) -> list[float]:
    """From each kill to the first commit that the survivors decided in a generation of their own."""
    found = []
    for killed_s in watch.kills_s:
        before = max((seen.generation for seen in watch.commits if seen.at_s < killed_s), default=0)
        after = [seen.at_s for seen in watch.commits if seen.at_s >= killed_s and seen.generation > before]
        if after:
            found.append((min(after) - killed_s) * 1e3)
    return found


FAMILY = Family(
    "recovery",
    "SIGKILL of a worker to the next committed step (local, ring, 4 workers, 288 B)",
    _measure,
    ("the kill comes at a moment of the clock, not at a phase; steps decided before it do not count",),
)
