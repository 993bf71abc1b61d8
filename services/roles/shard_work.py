"""One attempt of one step as one shard sees it: what has arrived, what is done, what is next.

Forward and backward each go in ascending micro-batch, whatever arrives when, and a micro-batch's backward goes before
the next one's forward when both could. Gradients are summed in ascending index, weighted by size.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np

from services.messages import Array, Boundary
from services.shard_jobs import ShardState
from services.shard_records import has_parts
from training.generator import GeneratorState
from training.tokens import TokenBatch
from training.transformer.shard import ShardCache
from training.transformer.step import add_micro_batch

Key = tuple[int, int, int]  # generation, step, attempt


@dataclass(slots=True, eq=False)
class ShardWork:
    """See the module's docstring. An evaluation has one micro-batch and no way back."""

    key: Key
    evaluate: bool
    batch: TokenBatch
    bounds: tuple[tuple[int, int], ...]
    generator: GeneratorState  # of the batches, after this step
    first: bool
    last: bool
    arrived: dict[tuple[str, int], tuple[Boundary, float]] = field(default_factory=dict)  # with its transit_ms
    used: set[tuple[str, int]] = field(default_factory=set)
    caches: dict[int, ShardCache] = field(default_factory=dict)
    next_forward: int = 0
    next_backward: int = 0
    gradient: Array | None = None
    parts: list[Array] = field(default_factory=list)  # what was added, where that is recorded
    losses: list[tuple[float, int]] = field(default_factory=list)
    busy: bool = False
    shadow: ShardState | None = None
    file: str = ""
    skip: bool = False  # changes nothing; the batch counts as drawn

    @property
    def all_parts(self) -> Array | None:
        """One behind the other, in ascending index; None where they are not recorded."""
        return np.concatenate(self.parts) if self.parts else None

    @property
    def micro_batch_count(self) -> int:
        return len(self.bounds)

    def contexts(self, micro_batch: int) -> int:
        start, stop = self.bounds[micro_batch]
        return stop - start

    def keep(self, boundary: Boundary, transit_ms: float) -> bool:
        """Keep a boundary of this version. False for one that came before (or has been used)."""
        version = (boundary.direction, boundary.micro_batch)
        if version in self.arrived or version in self.used:
            return False
        self.arrived[version] = boundary, transit_ms
        return True

    def take(self, direction: str, micro_batch: int) -> tuple[Boundary, float]:
        """Use a boundary, once; how long it was on its way."""
        self.used.add((direction, micro_batch))
        return self.arrived.pop((direction, micro_batch))

    def next_task(self) -> tuple[str, int] | None:
        """("backward" | "forward" | "update" | "skip", micro-batch) that can be done now, or None."""
        if self.busy or self.shadow is not None:
            return None
        if self.skip:
            return "skip", 0
        if not self.last and ("backward", self.next_backward) in self.arrived:
            return "backward", self.next_backward
        forward = "evaluate" if self.evaluate else "forward"
        if self.next_forward < self.micro_batch_count and (self.first or (forward, self.next_forward) in self.arrived):
            return "forward", self.next_forward
        if self.next_backward == self.micro_batch_count and not self.evaluate:
            return "update", 0
        return None

    def add_gradient(self, micro_batch: int, gradient: Array, loss: float) -> None:
        """In ascending index."""
        assert micro_batch == self.next_backward
        contexts = self.contexts(micro_batch)
        if has_parts(gradient.size, self.micro_batch_count):
            self.parts.append(gradient)
        self.gradient = add_micro_batch(self.gradient, gradient, contexts, len(self.batch.inputs))
        self.losses.append((loss, contexts))
        self.caches.pop(micro_batch, None)
        self.next_backward += 1
