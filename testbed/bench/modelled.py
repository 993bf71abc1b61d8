"""Ring and server on a network that we do not have: modelled figures, kept apart from the measured ones."""

from __future__ import annotations

from dataclasses import replace

from testbed.bench.cost_model import Modelled, Network, model_ring, model_server
from testbed.bench.exchange_role import default_chunk_elements
from testbed.bench.family import Bench, Family
from testbed.bench.figures import Figure, Peer, figure, times_as_fast
from testbed.bench.sizes import TRAINED

NETWORK = Network(latency_us=50.0, bytes_per_us=1250.0)
_WORKERS = (4, 16)


def _measure(bench: Bench) -> list[Figure]:
    found: list[Figure] = []
    for workers in _WORKERS[:1] if bench.quick else _WORKERS:
        for size in TRAINED:
            bench.say(f"cost model, {workers} workers, {size.label}")
            ring = model_ring(NETWORK, workers, size.elements, default_chunk_elements())
            server = model_server(NETWORK, workers, size.elements, default_chunk_elements())
            name = f"modelled.all_reduce.{{}}.{workers}w.{size.label}"
            found += [_figure(name.format("ring"), ring), _figure(name.format("ps"), server)]
            found.append(_compared(name.format("ring"), ring, server))
    return found


def _figure(name: str, modelled: Modelled) -> Figure:
    note = f"{modelled.messages} messages, {modelled.moved_bytes} bytes on all links"
    return figure(name, [modelled.time_us], "us", kind="modelled", note=note)


def _compared(name: str, ring: Modelled, server: Modelled) -> Figure:
    peer = Peer("the server, modelled", [server.time_us], "us")
    return replace(times_as_fast(f"{name}.speed_to_ps", [ring.time_us], peer), kind="modelled")


FAMILY = Family(
    "modelled",
    "MODELLED, not measured: all-reduce on a network of several machines",
    _measure,
    (
        NETWORK.describe(),
        "messages and bytes are those that the production exchange and codec produce; sums, checksums and waits cost 0",
    ),
)
