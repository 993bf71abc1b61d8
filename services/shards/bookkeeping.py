"""The verifier's own bookkeeping of a layer-sharded run: batches, delays, decay; the optimizer, replayed bitwise."""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import safetensors.numpy
from safetensors import SafetensorError

from services.messages import Array
from services.replay import digest_of
from services.shards.model import Ids

Json = Mapping[str, Any]

TOKENS_MAX = 1 << 24  # of a batch, or of an evaluation
STEPS_AHEAD_MAX = 4096  # a step further ahead of those that were asked for is none that a run has come to


class UnreadableTokens(Exception):
    """The run's tokens cannot be read."""


@dataclass(frozen=True, slots=True, eq=False)
class Tokens:
    train: Ids
    evaluation: Ids
    sha256: str


def read_tokens(blob: bytes) -> Tokens:
    """Raises UnreadableTokens."""
    try:
        tensors = safetensors.numpy.load(blob)
        header = json.loads(tensors["header"].tobytes())
        train, evaluation = tensors["train"], tensors["evaluation"]
        sizes = [header["vocabulary_size"], header["symbols"], len(train), len(evaluation)]
    except (SafetensorError, KeyError, ValueError, TypeError) as error:
        raise UnreadableTokens(f"the run's tokens are unreadable: {error}") from error
    digest = hashlib.sha256(b"gradstorm corpus 1\n" + json.dumps(sizes).encode() + b"\n")
    for part in (train, evaluation):
        digest.update(part.astype("<i8").tobytes())
    return Tokens(train, evaluation, digest.hexdigest())


class Batches:
    """The starts of the contexts of every step: one PCG64 generator, one draw a step, kept for as far as was asked."""

    def __init__(self, seed: int, count: int, context: int, tokens: Ids) -> None:
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._count, self._context, self._tokens = count, context, tokens
        self._starts: list[Ids] = []

    def at(self, step: int) -> tuple[Ids, Ids]:
        """Inputs and targets (b, t) of step `step`, from 1. Raises ValueError for one that cannot have come yet."""
        if not 1 <= step <= len(self._starts) + STEPS_AHEAD_MAX:
            raise ValueError(f"step {step} after step {len(self._starts)}")
        while len(self._starts) < step:
            places = len(self._tokens) - self._context
            self._starts.append(self._generator.integers(0, places, size=self._count, dtype=np.int64))
        at = self._starts[step - 1][:, None] + np.arange(self._context)
        return self._tokens[at], self._tokens[at + 1]


def require_sizes(config: Json) -> None:
    """Raise ValueError for a configuration of sizes that no run has; whoever goes by it would fill the memory."""
    sizes = [config[name] for name in ("batch", "micro_batches", "evaluation_contexts")]
    sizes += [config["model"]["context"], len(config["cuts"]) + 1]
    if any(type(size) is not int or size < 1 for size in sizes):
        raise ValueError(f"sizes {sizes} in the run's configuration; they must be whole numbers of at least 1")
    batch, micro_batches, contexts, context, _ = sizes
    if micro_batches > batch or max(batch, contexts) * context > TOKENS_MAX:
        raise ValueError(f"a batch of {batch} in {micro_batches}, and {contexts} evaluated, of {context} tokens each")


def bounds(batch: int, count: int) -> list[tuple[int, int]]:
    """Contiguous micro-batches; the first ones have one context more where it does not come out even."""
    share, rest = divmod(batch, count)
    found, start = [], 0
    for index in range(count):
        stop = start + share + (1 if index < rest else 0)
        found.append((start, stop))
        start = stop
    return found


def delay(config: Json, seed: int, step: int, micro_batch: int, cut: int, direction: str) -> int:
    """The delay in ticks that the seed says."""
    text = f"gradstorm delay 1 {seed} {step} {micro_batch} {cut} {direction}"
    drawn = hashlib.sha256(text.encode()).digest()
    first, second = int.from_bytes(drawn[:8], "big"), int.from_bytes(drawn[8:16], "big")
    base, jitter = config["base_ticks"], config["jitter_ticks"]
    ticks: int = max(0, base + (first * (2 * jitter + 1) // 2**64) - jitter)
    held_back = (second // 2**11) / 2**53 < config["reorder_probability"]
    return ticks + base + jitter + 1 if held_back else ticks


def weight(decay: Json | None, age: int) -> float:
    """What a boundary of this age counts."""
    return 1.0 if decay is None else max(decay["floor"], math.exp(-decay["rate"] * age))


@dataclass(frozen=True, slots=True, eq=False)
class Held:
    """A shard's state: parameters (P,), moments (P,) each, how many updates made them."""

    parameters: Array
    moments: tuple[Array, ...]
    count: int

    @property
    def digests(self) -> tuple[str, str]:
        joined = hashlib.sha256(b"%d" % self.count)
        for moment in self.moments:
            joined.update(digest_of(moment).encode())
        return digest_of(self.parameters), joined.hexdigest()


def start(optimizer: Json, parameters: Array) -> Held:
    """Before the first update: moments of zeros."""
    moments = 1 if "momentum" in optimizer else 2
    return Held(parameters, tuple(np.zeros_like(parameters) for _ in range(moments)), 0)


def advance(optimizer: Json, held: Held, gradient: Array) -> Held:
    """One update, each operation rounded once, in the order that the optimizers document."""
    if "momentum" in optimizer:
        velocity = optimizer["momentum"] * held.moments[0] + gradient
        return Held(held.parameters - optimizer["learning_rate"] * velocity, (velocity,), held.count + 1)
    count, rate = held.count + 1, optimizer["learning_rate"]
    beta1, beta2 = optimizer["beta1"], optimizer["beta2"]
    first = beta1 * held.moments[0] + (1.0 - beta1) * gradient
    second = beta2 * held.moments[1] + (gradient * gradient) * (1.0 - beta2)
    scale = np.sqrt(second / (1.0 - _power(beta2, count))) + optimizer["epsilon"]
    change = (first / (1.0 - _power(beta1, count))) / scale * rate
    parameters = (1.0 - rate * optimizer["weight_decay"]) * held.parameters - change
    return Held(parameters, (first, second), count)


def _power(base: float, exponent: int) -> float:
    result, square = 1.0, float(base)
    while exponent:
        if exponent % 2:
            result *= square
        square *= square
        exponent //= 2
    return result
