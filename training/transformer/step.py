"""Micro-batches, the order in which their gradients are summed, and the central step that every cut has to equal.

A batch is cut into micro-batches of contiguous contexts. Each goes forward and backward on its own, with the mean
loss over its own tokens; then gradients (and losses) are summed in ascending index, weighted by size:

    gradient = (n_0 / n) * g_0;  gradient = gradient + (n_m / n) * g_m  for m = 1, 2, ...      n_m contexts of n

which is `training.reduction`, with micro-batches in place of workers. A shard does the same with its own part.
"""

from collections.abc import Iterable
from itertools import accumulate, pairwise

from training.arrays import FloatArray, IntArray
from training.errors import ConfigurationError
from training.reduction import add_in_order, scaled
from training.transformer.head import cross_entropy
from training.transformer.shard import shard_backward, shard_forward
from training.transformer.sharding import ShardSpec


def micro_batches(batch_size: int, count: int) -> tuple[tuple[int, int], ...]:
    """Bounds (start, stop) of `count` micro-batches of contiguous contexts; where it does not come out even, the first
    ones have one context more. Raises ConfigurationError unless 1 <= count <= batch_size."""
    if not 1 <= count <= batch_size:
        raise ConfigurationError(
            f"cannot cut a batch of {batch_size} contexts into {count} micro-batches; choose 1 .. {batch_size}"
        )
    share, rest = divmod(batch_size, count)
    sizes = (share + (index < rest) for index in range(count))
    return tuple(pairwise((0, *accumulate(sizes))))


def add_micro_batch(total: FloatArray | None, gradient: FloatArray, contexts: int, batch_size: int) -> FloatArray:
    """The running sum with one more micro-batch, float64 (P,); `total` is None before the first, index 0.

    Duty of the caller: ascending index. Raises ContractError as `training.reduction` does.
    """
    part = scaled(gradient, contexts, batch_size)
    return part if total is None else add_in_order(total, part)


def mean_loss(losses: Iterable[tuple[float, int]], batch_size: int) -> float:
    """The batch's loss, from (loss, contexts) per micro-batch in ascending index: the same sum as for gradients."""
    total: float | None = None
    for loss, contexts in losses:
        part = (contexts / batch_size) * loss
        total = part if total is None else total + part
    if total is None:
        raise ConfigurationError("a batch without micro-batches has no loss")
    return total


def central_gradient(
    spec: ShardSpec, parameters: FloatArray, inputs: IntArray, targets: IntArray, micro_batch_count: int
) -> tuple[float, FloatArray]:
    """Loss of the batch and gradient float64 (P,) of the uncut model; inputs and targets int64 (n, t).

    Raises ConfigurationError as `micro_batches`, ContractError as `shard_forward` and `cross_entropy`.
    """
    assert spec.shard_count == 1
    losses = []
    total: FloatArray | None = None
    bounds = micro_batches(len(inputs), micro_batch_count)
    for start, stop in bounds:
        logits, cache = shard_forward(spec, parameters, inputs[start:stop])
        loss, logits_gradient = cross_entropy(logits, targets[start:stop])
        _, gradient = shard_backward(spec, parameters, cache, logits_gradient)
        total = add_micro_batch(total, gradient, stop - start, len(inputs))
        losses.append((loss, stop - start))
    assert total is not None
    return mean_loss(losses, len(inputs)), total


def central_loss(spec: ShardSpec, parameters: FloatArray, inputs: IntArray, targets: IntArray) -> float:
    """Mean cross-entropy in nats of the uncut model over contexts that go forward as one micro-batch."""
    logits, _ = shard_forward(spec, parameters, inputs)
    return cross_entropy(logits, targets)[0]
