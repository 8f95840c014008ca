"""Rounding of weights whose errors cancel in the mean.

After a Relu all values are positive, and images have much in common: the operands of a weight have a mean far from
zero. Rounded to nearest, the errors of a channel's weights then add up to a shift of its output that is the same for
every sample, passes through the network undamped, and in deep networks is most of the error. Nagel et al. ("Data-free
quantization through weight equalization and bias correction", 2019) measure the shift and correct it in the bias. Here
it is avoided: some weights that are nearly as close to their second nearest integer are rounded to that, so that ``sum
of e_k E[x_k]`` vanishes. No bias is needed, and the rounding of a weight does not depend on the rest of the network.

For a channel with errors e the expected squared error of its output is ``sum of e_k² var(x_k) + (sum of e_k E[x_k])²``,
if inputs do not correlate beyond their means. It is reduced greedily. Candidates are ordered by the increase of the
first sum for each unit by which they reduce the second, and the best number of them is moved. Then single weights move
as long as that helps, which matters if there are few, as in depthwise convolutions. (Rounding by such an estimate, with
all correlations: Nagel et al., "Up or down? Adaptive rounding for post-training quantization", 2020.)
"""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.execute.trace import Trace
from eqsat.quantization.calibrate import Calibration
from eqsat.quantization.moments import Moments, by_channel
from eqsat.quantization.quantizer import Quantizer
from eqsat.quantization.scheme import QuantizedTensor, Scheme

_LIMIT = 127
_CANDIDATES = 16
"""Weights of a channel that may move at first, in square roots of their number: the shift grows like that as well."""
_ROUNDS = 32
"""Single moves per channel, at most."""
_NEGLIGIBLE = 0.01
"""Part of a channel's error that its mean may leave without single moves."""
_CHUNK = 1 << 21
"""Weights processed at once, which bounds the memory for intermediate results."""


def balanced(model: ir.Model, scheme: Scheme, calibration: Calibration) -> Scheme:
    """The scheme with weights rounded so that errors cancel in the mean.

    Weights with several readers, and those of operators without moments, are rounded to nearest.

    Args:
        model: The calibrated model of the scheme.
        scheme: The quantization.
        calibration: Statistics with moments.
    """
    nodes = list(model.graph)
    constants = Trace(model).constants

    def one(tensor: QuantizedTensor) -> QuantizedTensor:
        if tensor.kind != "weight" or tensor.readers is None or len(tensor.readers) != 1:
            return tensor
        position = tensor.readers[0][0]
        moments = calibration.moments.get(position)
        if moments is None:
            return tensor
        integers = balanced_integers(nodes[position], constants[tensor.name], tensor.quantizer, moments)
        return replace(tensor, integers=integers)

    return replace(scheme, tensors=tuple(map(one, scheme.tensors)))


def balanced_integers(node: ir.Node, weight: np.ndarray, quantizer: Quantizer, moments: Moments) -> np.ndarray:
    """Integers for a weight: each the nearest or the second nearest.

    Args:
        node: The node that reads the weight.
        weight: float32, finite.
        quantizer: Symmetric int8.
        moments: Moments of the operands of the weight.
    """
    integers = quantizer.quantize(weight)
    groups = len(moments.total)
    # Writes into views of the channels' weights change the integers.
    parts = by_channel(node, integers, groups)
    steps = quantizer.scale.astype(np.float64).reshape(groups, -1, 1) if quantizer.axis is not None else quantizer.scale
    steps = np.broadcast_to(steps, (*parts.shape[:2], 1))
    reals = by_channel(node, weight, groups)
    for g in range(groups):
        rows = max(1, _CHUNK // parts.shape[2])
        for start in range(0, parts.shape[1], rows):
            chosen = (g, slice(start, start + rows))
            scaled = reals[chosen].astype(np.float64) / steps[chosen]
            parts[chosen] += _moves(scaled, parts[chosen], moments.mean[g], moments.variance[g])
    return integers


def _moves(scaled: np.ndarray, nearest: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """-1, 0 or 1 for each integer (int8[channels, K]).

    Args:
        scaled: Weights in steps (float64[channels, K]).
        nearest: Their nearest integers.
        mean, variance: Of the operands of the weights (float64[K]).
    """
    error = nearest - scaled
    other = -np.sign(error)
    usable = (other != 0) & (np.abs(nearest + other) <= _LIMIT)
    other = np.where(usable, other, 0.0)
    moved = _prefix(error, other, mean, variance)
    rows = np.flatnonzero(_is_shifted(error + moved * other, mean, variance))
    for _ in range(_ROUNDS):
        if not len(rows):
            break
        rows = rows[_move_best(error, other, moved, mean, variance, rows)]
    return (moved * other).astype(np.int8)


def _prefix(error: np.ndarray, other: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """The weights that move (bool[channels, K]): the best number of the cheapest ones."""
    shift = error @ mean
    gain = -other * mean * np.sign(shift)[:, None]
    usable = gain > 0
    gain = np.where(usable, gain, 0.0)
    cost = np.where(usable, variance * (1 - 2 * np.abs(error)), 0.0)
    price = np.divide(cost, gain, out=np.full_like(cost, np.inf), where=usable)
    order = _cheapest(price, min(error.shape[1], _CANDIDATES * (math.isqrt(error.shape[1]) + 1)))
    spent = np.cumsum(np.take_along_axis(cost, order, 1), axis=1)
    left = np.abs(shift)[:, None] - np.cumsum(np.take_along_axis(gain, order, 1), axis=1)
    total = spent + left**2
    best = np.argmin(total, axis=1)
    count = np.where(total[np.arange(len(total)), best] < shift**2, best + 1, 0)
    moved = np.zeros(error.shape, bool)
    np.put_along_axis(moved, order, np.arange(order.shape[1]) < count[:, None], axis=1)
    return moved & usable


def _cheapest(price: np.ndarray, count: int) -> np.ndarray:
    """Positions of the lowest prices of each row, in order (int64[channels, count])."""
    if count < price.shape[1]:
        chosen = np.sort(np.argpartition(price, count - 1, axis=1)[:, :count], axis=1)
    else:
        chosen = np.broadcast_to(np.arange(count), price.shape)
    order = np.argsort(np.take_along_axis(price, chosen, 1), axis=1, kind="stable")
    return np.take_along_axis(chosen, order, 1)


def _is_shifted(error: np.ndarray, mean: np.ndarray, variance: np.ndarray) -> np.ndarray:
    """Whether a channel's mean is not negligible compared with its error (bool[channels])."""
    return (error @ mean) ** 2 > _NEGLIGIBLE * (error**2 @ variance)


def _move_best(
    error: np.ndarray, other: np.ndarray, moved: np.ndarray, mean: np.ndarray, variance: np.ndarray, rows: np.ndarray
) -> np.ndarray:
    """Moves in each row the weight that helps most, to its second nearest integer or back; returns whether any did."""
    now = error[rows] + moved[rows] * other[rows]
    step = np.where(moved[rows], -other[rows], other[rows])
    shift = (now @ mean)[:, None]
    change = variance * (1 + 2 * now * step) * np.abs(step) + 2 * shift * step * mean + (step * mean) ** 2
    best = np.argmin(change, axis=1)
    least = change[np.arange(len(rows)), best]
    helped = least < -1e-9 * (shift[:, 0] ** 2 + now**2 @ variance)
    moved[rows[helped], best[helped]] ^= True
    return helped
