"""The live display: what it shows follows from the facts alone, with no colour and no table away from a terminal."""

from __future__ import annotations

import io

from rich.console import Console

from services.records import Committed, Died, FaultActed, FaultArmed, FaultMissed, FaultUndone, Regrouped, StepApplied
from testbed.live import PlainLines, draw, make_sink
from testbed.run_state import RunState, describe

COMMIT = Committed(
    step=7,
    generation=3,
    attempt=0,
    epoch=0,
    contributors=((1, 1, 8), (3, 1, 8)),
    sample_ids=((1,), (2,)),
    digests=("a", "b"),
    total=16,
    reduced_digest="c",
    loss=1.25,
)


def test_the_picture_follows_the_facts() -> None:
    state = RunState(steps=60)
    state.role("worker-1", 2, "up")
    for fact in (
        Regrouped(3, ((1, 1), (3, 1)), 6, "worker 2 died"),
        COMMIT,
        StepApplied(7, 3, ((1, 1, "p", "v"), (3, 1, "p", "v"))),
        FaultArmed("1-kill", "kill", "worker-2", {"role": "worker-2", "step": 6, "phase": "offer"}),
        FaultActed("1-kill", {"exit_code": -9}),
    ):
        state.fact("coordinator", fact)
    assert (state.step, state.generation, state.loss, state.effective_batch, state.members) == (7, 3, 1.25, 16, 2)
    assert state.roles["worker-1"].launch == 2
    assert state.roles["worker-3"].step == 7
    assert state.active_faults() == ["1-kill"]
    state.fact("driver", FaultUndone("1-kill", {}))
    state.fact("driver", FaultMissed("2-pause", "never reached"))
    assert state.active_faults() == []
    assert state.faults["2-pause"] == "missed: never reached"


def test_the_table_shows_it_all() -> None:
    state = RunState(steps=60, verdicts={"fencing": "pass"})
    state.role("worker-1", 2, "held at offer")
    state.fact("coordinator", COMMIT)
    state.fact("driver", FaultActed("1-kill", {"exit_code": -9}))
    state.waiting("offers", ("worker-2",), 3.0, 10.0)
    console = Console(file=io.StringIO(), width=120)
    console.print(draw(state, ["a note"]))
    stream = console.file
    assert isinstance(stream, io.StringIO)
    text = stream.getvalue()
    for part in ("step 7/60", "held at offer", "1-kill acting", "fencing pass", "missing worker-2", "a note"):
        assert part in text
    assert "\x1b" not in text


def test_plain_lines_where_there_is_no_terminal() -> None:
    stream = io.StringIO()
    sink = make_sink(RunState(steps=60), stream)
    assert isinstance(sink, PlainLines)
    with sink:
        sink.role("worker-1", 1, "up")
        sink.fact("coordinator", Died(2, 1, "link broken", 6))
        sink.waiting("members", ("worker-2",), 1.0, 20.0)
        sink.waiting("members", ("worker-2",), 1.1, 20.0)
        sink.judged({"fencing": "violated"})
        sink.judged({"fencing": "violated"})
    lines = [line.partition("] ")[2] for line in stream.getvalue().splitlines()]
    assert lines == [
        "worker-2 is dead at step 6: link broken",
        "waiting for members: missing worker-2, 1 s so far, 20 s at most",
        "fencing: violated",
    ]


def test_a_long_wait_is_said_ever_more_rarely_and_another_one_at_once() -> None:
    stream = io.StringIO()
    sink = PlainLines(RunState(steps=60), stream)
    for seconds in range(1, 20):
        sink.waiting("members", ("worker-2",), float(seconds), 20.0)
    sink.waiting("members", ("worker-3",), 19.5, 20.0)
    said = [line.partition("missing ")[2].partition(" s so far")[0] for line in stream.getvalue().splitlines()]
    assert said == ["worker-2, 1", "worker-2, 2", "worker-2, 4", "worker-2, 8", "worker-2, 16", "worker-3, 20"]


def test_steps_are_told_by_the_clock() -> None:
    now = [0.0]
    stream = io.StringIO()
    sink = PlainLines(RunState(steps=60), stream, lambda: now[0])
    for now[0] in (0.5, 1.0, 2.5, 3.0):
        sink.fact("coordinator", COMMIT)
    assert stream.getvalue().count("step 7/60") == 1
    assert describe("coordinator", COMMIT) == ""
