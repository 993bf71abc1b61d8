"""The reference gradient: what one process would compute over the union of a step's samples.

It shares no arithmetic with what it judges: the forward pass below is its own, the derivative comes from `autograd`,
sample by sample (small models) or contributor by contributor (large ones), and the sums over samples are carried out in
double-double arithmetic, so that their own rounding does not show. Nothing of `training` is used.

Order of the flat parameter vector, matrices row-major, d features, c classes, h hidden units:
softmax: weights (d, c), bias (c); mlp: hidden weights (d, h), hidden bias (h), output weights (h, c), output bias (c).

**Noise floor.** A gradient element is a mean of products whose factors are themselves differences of numbers near 1. To
first order the rounding error of an element is at most a small multiple of

    eps * mean over samples of (sum of the magnitudes of everything that was added up on the way to it),  eps = 2^-52.

For logit z_c that sum is Z_c = sum_d |x_d w_dc| + |b_c|; for its error p_c - y_c it is E_c = p_c + y_c
+ p_c (Z_c + sum_j p_j Z_j); for a weight's gradient |x_d| E_c; for the MLP the same rules go on through tanh. The noise
floor of a step is the largest element's value. On healthy runs the worst error stays below a few floors (measured:
below 1), and `TOLERANCE_FLOORS` floors is the tolerance.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import autograd
import autograd.numpy as anp
import numpy as np
import numpy.typing as npt
from autograd.tracer import getval

from services.messages import Array

EPS = 2.0**-52
TOLERANCE_FLOORS = 4.0
SLICE_ELEMENTS = 8192  # 64 KiB of a large array at a time
PER_SAMPLE_ELEMENTS_MAX = 1 << 18  # samples x parameters of one step up to which samples are differentiated singly
STACKED_ELEMENTS_MAX = 1 << 18  # contributors x parameters up to which one trace is made for all contributors

Ids = npt.NDArray[np.int64]


@dataclass(frozen=True, slots=True, eq=False)
class Question:
    """A step's state and its samples, by contributor. parameters float64 (P,)."""

    parameters: Array
    groups: tuple[tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, eq=False)
class Answers:
    """To K questions with S groups in all, row by row in the order in which they were asked.

    Mean gradients over unions (K, P) and groups (S, P); their noise floors (K,) and (S,); samples of each (K,) and
    (S,); the number of groups of each question and the row of its first one (K,).
    """

    unions: Array
    groups: Array
    union_floors: Array
    group_floors: Array
    totals: Array
    sizes: Array
    counts: Ids
    starts: Ids


@dataclass(frozen=True, slots=True)
class Losses:
    """Mean cross-entropies in nats; two computations in any order differ by no more than `tolerance`."""

    groups: list[float]
    union: float
    tolerance: float


class Reference:
    """Gradients of one model on one dataset. features float64 (n, d), labels int64 (n,)."""

    def __init__(self, model: Mapping[str, Any], features: Array, labels: Ids) -> None:
        kind = model["kind"]
        if kind not in ("softmax", "mlp"):
            raise ValueError(f"no reference for a model of kind {kind!r}")
        d, c, h = model["feature_count"], model["class_count"], model["hidden_count"]
        self._shapes: tuple[tuple[int, ...], ...] = (
            ((d, c), (c,)) if kind == "softmax" else ((d, h), (h,), (h, c), (c,))
        )
        self.parameter_count = sum(int(np.prod(shape)) for shape in self._shapes)
        if features.ndim != 2 or features.shape[1] != d or labels.shape != features.shape[:1]:
            raise ValueError(f"features {features.shape} and labels {labels.shape} do not fit a model of {d} features")
        self._features = features
        self.scale = max(1.0, float(np.abs(features).max(initial=0.0)))  # of a gradient: |feature| times an error
        self._targets = np.eye(c)[labels]
        self._gradient: Callable[..., tuple[Array, ...]] = autograd.grad(_loss_sum, 0)

    def answer(self, questions: Sequence[Question]) -> Answers:
        """The reference gradients, by sample where that is not too large. Raises IndexError for ids beyond the data."""
        samples = sum(len(ids) for question in questions for ids in question.groups)
        with np.errstate(all="ignore"):
            if samples * self.parameter_count <= PER_SAMPLE_ELEMENTS_MAX:
                return self._by_sample(questions)
            groups = [len(ids) for question in questions for ids in question.groups]
            if len(groups) * self.parameter_count <= STACKED_ELEMENTS_MAX and len(set(groups)) == 1:
                return self._by_stacked_group(questions)
            return self._by_group(questions)

    def losses(self, question: Question) -> Losses:
        """Mean losses of each group and of their union, in nats. Raises IndexError for ids beyond the data."""
        rows = [sample for ids in question.groups for sample in ids]
        with np.errstate(all="ignore"):
            each, bounds = _losses(self._parts(question.parameters), self._features[rows], self._targets[rows])
        stops = np.cumsum([len(ids) for ids in question.groups]).tolist()
        means, start = [], 0
        for stop in stops:
            means.append(_mean(each[start:stop]))
            start = stop
        rounds = EPS * (len(rows) + len(stops) + 8) * float(each.max())  # of the sums and the weighting
        return Losses(means, _mean(each), 2.0 * (float(bounds.max()) + rounds))

    def evaluate(self, parameters: Array, features: Array, labels: Ids) -> tuple[float, float]:
        """Mean cross-entropy in nats and the share of rows (0 .. 1) whose largest logit is the label's."""
        parts = self._parts(parameters)
        with np.errstate(all="ignore"):
            logits = _logits(parts, features)
            shifted = logits - logits.max(axis=-1, keepdims=True)
            losses = np.log(np.exp(shifted).sum(axis=-1)) - shifted[np.arange(len(labels)), labels]
        finite = np.isfinite(losses).all()
        loss = math.fsum(losses.tolist()) / len(labels) if finite else math.nan
        return loss, float(np.count_nonzero(logits.argmax(axis=-1) == labels)) / len(labels)

    def _parts(self, flat: Array) -> tuple[Array, ...]:
        """Views of the model's arrays in flat vectors (..., P)."""
        parts = []
        start = 0
        for shape in self._shapes:
            stop = start + int(np.prod(shape))
            parts.append(flat[..., start:stop].reshape(*flat.shape[:-1], *shape))
            start = stop
        return tuple(parts)

    def _by_sample(self, questions: Sequence[Question]) -> Answers:
        """One trace for all samples of all questions, each with its own copy of the parameters."""
        groups = [ids for question in questions for ids in question.groups]
        sizes = np.array([len(ids) for ids in groups])
        rows = np.array([sample for ids in groups for sample in ids])
        per_question = [sum(len(ids) for ids in question.groups) for question in questions]
        flat = np.array([question.parameters for question in questions]).repeat(per_question, axis=0)
        # One row of its own for each sample: (m, 1, d) @ (m, d, c).
        parts = tuple(part[:, None, :] if part.ndim == 2 else part for part in self._parts(flat))
        x, y = self._features[rows][:, None, :], self._targets[rows][:, None, :]
        single = _flat(self._gradient(parts, x, y), len(rows))
        high, low = sum_segments(single, None, sizes)
        if (sizes == sizes[0]).all():
            floors = _flat(_magnitude_sums(*self._stacked(questions, sizes, rows)), len(sizes))
        else:
            magnitudes = _flat(_magnitude_sums(parts, x, y), len(rows))
            floors = np.add.reduceat(magnitudes, sizes.cumsum() - sizes, axis=0)
        return _answers(questions, sizes, high, low, floors)

    def _by_stacked_group(self, questions: Sequence[Question]) -> Answers:
        """One trace for all contributors of the same number of samples, each with its own copy of the parameters."""
        groups = [ids for question in questions for ids in question.groups]
        sizes = np.array([len(ids) for ids in groups])
        parts, x, y = self._stacked(questions, sizes, np.array([sample for ids in groups for sample in ids]))
        sums = _flat(self._gradient(parts, x, y), len(sizes))
        floors = _flat(_magnitude_sums(parts, x, y), len(sizes))
        return _answers(questions, sizes, sums, np.zeros_like(sums), floors)

    def _stacked(self, questions: Sequence[Question], sizes: Ids, rows: Ids) -> tuple[tuple[Array, ...], Array, Array]:
        """Parameters, features and targets of groups of one size, for all groups at once: (S, n, d) @ (S, d, c)."""
        flat = np.array([question.parameters for question in questions])
        flat = flat.repeat([len(question.groups) for question in questions], axis=0)
        parts = tuple(part[:, None, :] if part.ndim == 2 else part for part in self._parts(flat))
        shape = (len(sizes), int(sizes[0]), -1)
        x, y = self._features[rows].reshape(shape), self._targets[rows].reshape(shape)
        return parts, x, y

    def _by_group(self, questions: Sequence[Question]) -> Answers:
        """One trace for each contributor; its samples are added by the backward pass itself, contributors in
        double-double. Large arrays are touched as few times as can be."""
        counts = np.array([len(question.groups) for question in questions])
        sizes = np.array([len(ids) for question in questions for ids in question.groups], dtype=np.float64)
        starts = counts.cumsum() - counts
        totals = np.add.reduceat(sizes, starts)
        groups = np.empty((len(sizes), self.parameter_count))
        unions = np.zeros((len(questions), self.parameter_count))
        group_floors, union_floors = np.empty(len(sizes)), np.empty(len(questions))
        row = 0
        for place, question in enumerate(questions):
            parts = self._parts(question.parameters)
            lost, magnitudes = np.zeros(self.parameter_count), np.zeros(self.parameter_count)
            for ids in question.groups:
                x, y = self._features[list(ids)], self._targets[list(ids)]
                gradient = _flat(self._gradient(parts, x, y), 1)[0]
                magnitude = _flat(_magnitude_sums(parts, x, y), 1)[0]
                _accumulate(unions[place], lost, gradient)
                np.divide(gradient, sizes[row], out=groups[row])
                group_floors[row] = EPS * magnitude.max() / sizes[row]
                magnitudes += magnitude
                row += 1
            unions[place] += lost
            unions[place] /= totals[place]
            union_floors[place] = EPS * magnitudes.max() / totals[place]
        return Answers(unions, groups, union_floors, group_floors, totals, sizes, counts, starts)


def _flat(parts: Sequence[Array], rows: int) -> Array:
    """(rows, P) from the model's arrays."""
    return np.concatenate([part.reshape(rows, -1) for part in parts], axis=1)


def _answers(questions: Sequence[Question], sizes: Ids, high: Array, low: Array, floors: Array) -> Answers:
    """From sums over each group (rows) to means over groups and unions."""
    counts = np.array([len(question.groups) for question in questions])
    starts = counts.cumsum() - counts
    counted = sizes.astype(np.float64)
    totals = np.add.reduceat(counted, starts)
    union_high, union_low = sum_segments(high, low, counts)
    unions = (union_high + union_low) / totals[:, None]
    means = (high + low) / counted[:, None]
    group_floors = EPS * floors.max(axis=1) / counted
    union_floors = EPS * np.add.reduceat(floors, starts, axis=0).max(axis=1) / totals
    return Answers(unions, means, union_floors, group_floors, totals, counted, counts, starts)


# ---------------------------------------------------------------- the model, for autograd


def _logits(parts: tuple[Any, ...], x: Any) -> Any:
    """(..., n, d) -> (..., n, c)."""
    activity = x
    for layer in range(0, len(parts), 2):
        if layer:
            activity = anp.tanh(activity)
        activity = anp.matmul(activity, parts[layer]) + parts[layer + 1]
    return activity


def _loss_sum(parts: tuple[Any, ...], x: Any, y: Any) -> Any:
    """Sum of cross-entropies in nats over the rows of x (..., n, d), y one-hot (..., n, c)."""
    activity = _logits(parts, x)
    shifted = activity - np.max(getval(activity), axis=-1, keepdims=True)  # a constant: it changes no derivative
    return anp.sum(anp.log(anp.sum(anp.exp(shifted), axis=-1))) - anp.sum(shifted * y)


def _losses(parts: Sequence[Array], x: Array, y: Array) -> tuple[Array, Array]:
    """Loss of each row of x (n, d), y one-hot (n, c), and by how much rounding may have moved it, both (n,).

    A product of inner size d is wrong by at most (d + 2) eps |x| |W| (Higham, Accuracy and Stability, 3.5); errors of
    its input are carried on by |W|, tanh carries them on as they are; a loss moves by twice its logits' error at most.
    """
    activity, error = x, np.zeros(len(x))
    for layer in range(0, len(parts), 2):
        weights, bias = parts[layer : layer + 2]
        if layer:
            activity, error = np.tanh(activity), error + 4 * EPS
        largest = max(float(weights.max()), -float(weights.min()))
        reach = np.abs(activity).sum(axis=-1) * largest + np.abs(bias).max()
        error = len(weights) * largest * error + EPS * (len(weights) + 2) * reach
        activity = activity @ weights + bias
    shifted = activity - activity.max(axis=-1, keepdims=True)
    each = np.log(np.exp(shifted).sum(axis=-1)) - (shifted * y).sum(axis=-1)
    spread = 1 - shifted.min(axis=-1) + np.abs(activity).max(axis=-1)
    return each, 2 * error + EPS * (y.shape[1] + 8) * spread


def _mean(values: Array) -> float:
    return math.fsum(values.tolist()) / len(values) if np.isfinite(values).all() else math.nan


# ---------------------------------------------------------------- magnitudes, see "Noise floor"


def _output_magnitudes(parts: Sequence[Array], x: Array, y: Array) -> tuple[Array, ...]:
    """(input, its magnitude, logit errors, their magnitudes) of the output layer, and of the hidden one if any."""
    weights, bias = parts[-2:]
    if len(parts) == 4:
        before = x @ parts[0] + parts[1]
        before_magnitude = np.abs(x) @ np.abs(parts[0]) + np.abs(parts[1])
        inputs = np.tanh(before)
        input_magnitude = np.abs(inputs) + (1 - inputs * inputs) * before_magnitude
    else:
        inputs, input_magnitude = x, np.abs(x)
    logits = inputs @ weights + bias
    logits -= logits.max(axis=-1, keepdims=True)
    likely = np.exp(logits)
    likely /= likely.sum(axis=-1, keepdims=True)
    reach = input_magnitude @ np.abs(weights) + np.abs(bias)
    error_magnitude = likely + y + likely * (reach + (likely * reach).sum(axis=-1, keepdims=True))
    return inputs, input_magnitude, likely - y, error_magnitude


def _layer_magnitudes(parts: Sequence[Array], x: Array, y: Array) -> list[tuple[Array, Array, Array, Array]]:
    """For each layer, input side first: its input, the input's magnitude, its error, the error's magnitude."""
    inputs, input_magnitude, errors, error_magnitude = _output_magnitudes(parts, x, y)
    output = (inputs, input_magnitude, errors, error_magnitude)
    if len(parts) == 2:
        return [output]
    turned = np.swapaxes(parts[2], -1, -2)
    slope = 1 - inputs * inputs
    hidden = errors @ turned
    magnitude = (error_magnitude @ np.abs(turned)) * slope + np.abs(hidden) * (1 + inputs * inputs)
    magnitude += np.abs(hidden) * 2 * np.abs(inputs) * input_magnitude
    return [(x, np.abs(x), hidden * slope, magnitude), output]


def _magnitude_sums(parts: Sequence[Array], x: Array, y: Array) -> list[Array]:
    """Magnitudes of the gradient's elements, summed over the rows of x (..., n, d)."""
    found: list[Array] = []
    for inputs, input_magnitude, errors, error_magnitude in _layer_magnitudes(parts, x, y):
        weights = np.swapaxes(np.abs(inputs), -1, -2) @ error_magnitude
        if inputs is not x:
            weights = weights + np.swapaxes(input_magnitude, -1, -2) @ np.abs(errors)
        found += [weights, error_magnitude.sum(axis=-2)]
    return found


# ---------------------------------------------------------------- sums in double-double


def sum_segments(high: Array, low: Array | None, lengths: Ids) -> tuple[Array, Array]:
    """Sum consecutive rows of (rows, P), `lengths` (each at least 1) of them at a time; a value is high + low.

    The error of a sum is about eps^2 of its magnitudes. Source: Knuth's TwoSum, cascaded as in Ogita, Rump, Oishi 2005.
    """
    longest = int(lengths.max())
    width = high.shape[1]
    if (lengths == longest).all():
        return _sum_rows(high.reshape(-1, longest, width), None if low is None else low.reshape(-1, longest, width))
    places = (lengths.cumsum() - lengths)[:, None] + np.arange(longest)
    places[np.arange(longest) >= lengths[:, None]] = high.shape[0]  # a row of zeros
    nothing = np.zeros((1, width))
    padded_low = None if low is None else np.concatenate([low, nothing])[places]
    return _sum_rows(np.concatenate([high, nothing])[places], padded_low)


def _sum_rows(high: Array, low: Array | None) -> tuple[Array, Array]:
    """(S, L, P) -> (S, P) twice."""
    total = high[:, 0]
    lost = np.zeros_like(total) if low is None else low[:, 0]
    for row in range(1, high.shape[1]):
        first, second = total, high[:, row]
        total = first + second
        shadow = total - first
        lost = lost + ((first - (total - shadow)) + (second - shadow))
        if low is not None:
            lost = lost + low[:, row]
    return total, lost


def _accumulate(total: Array, lost: Array, more: Array) -> None:
    """total + lost += more, TwoSum in place, a slice at a time so that what is made on the way stays in the cache."""
    for start in range(0, total.size, SLICE_ELEMENTS):
        part = slice(start, start + SLICE_ELEMENTS)
        first, second = total[part], more[part]
        added = first + second
        shadow = added - first
        lost[part] += (first - (added - shadow)) + (second - shadow)
        total[part] = added
