"""Transforms of signals, windows, and losses."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode

_INT64 = ir.DataType.INT64


def _number(node: SampledNode, i: int, value: int) -> None:
    node.draw(i, (), values=np.asarray(value, np.int64), dtype=_INT64)


def window(node: SampledNode) -> None:
    node.attr("periodic", int(node.chance.happens(0.5)))
    _number(node, 0, node.chance.number(1, 8))


def short_time_fourier(node: SampledNode) -> None:
    chance = node.chance
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, (chance.number(1, 2), chance.number(4, 12), 1))
    if len(shape) < 2 or shape[1] < 2:
        raise Rejected("no signal")
    length = chance.number(2, min(shape[1], 6))
    node.attr("onesided", int(chance.happens(0.6)))
    _number(node, 1, chance.number(1, 3))
    if node.has(2):
        node.draw(2, (length,))
    if node.has(3):
        _number(node, 3, length)


def loss(node: SampledNode) -> None:
    """Scores of classes in the second dimension, and for each of the others its class."""
    chance = node.chance
    shape = node.known(0)
    if shape is None:
        shape = node.draw(0, chance.shape(least=2))
    if len(shape) < 2 or 0 in shape:
        raise Rejected("no classes")
    node.attr("reduction", chance.one_of(("none", "mean", "sum")))
    places = (shape[0], *shape[2:])
    node.draw(1, places, values=chance.rng.integers(0, shape[1], places), dtype=_INT64)
    if chance.happens(0.3):
        node.attr("ignore_index", chance.number(-1, shape[1] - 1))
    if node.has(2):
        node.draw(2, (shape[1],), fill="positive")
