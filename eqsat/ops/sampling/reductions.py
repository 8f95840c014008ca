"""Reductions and what works along an axis."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import Fill, SampledNode


def reduction(node: SampledNode) -> None:
    chance = node.chance
    fill: Fill = "positive" if node.op.name == "ReduceLogSum" else "any"
    keep = node.attr("keepdims", int(chance.happens(0.5)))
    shape = node.known(0)
    if shape is None:
        wish = node.shape
        if wish is not None and keep:
            wish = tuple(chance.dim() if d == 1 and chance.happens(0.7) else d for d in wish)
        elif wish is not None:
            k = chance.number(0, len(wish))
            wish = (*wish[:k], chance.number(1, 4), *wish[k:])
        shape = node.draw(0, wish if wish is not None else chance.shape(), fill=fill)
    if node.has(1):
        rank = len(shape)
        kind = chance.number(0, 2)
        if kind == 0 and rank > 2:
            axes = list(range(2, rank))
        else:
            axes = chance.shuffled(range(rank))[: chance.number(min(1, rank), rank)]
        said = [a - rank if chance.happens(0.3) else a for a in axes]
        node.draw(1, (len(said),), values=np.asarray(said, np.int64), dtype=ir.DataType.INT64)
    if chance.happens(0.1):
        node.attr("noop_with_empty_axes", 1)


def arg(node: SampledNode) -> None:
    shape = node.draw(0, node.chance.shape(least=1))
    if not shape:
        raise Rejected("a scalar")
    node.attr("axis", node.chance.number(-len(shape), len(shape) - 1))
    node.attr("keepdims", int(node.chance.happens(0.5)))
    node.attr("select_last_index", int(node.chance.happens(0.3)))


def along(node: SampledNode) -> None:
    shape = node.draw(0, node.shape if node.shape is not None else node.chance.shape(least=1))
    if not shape:
        raise Rejected("a scalar")
    if node.chance.happens(0.8):
        node.attr("axis", node.chance.number(-len(shape), len(shape) - 1))
    if node.op.name == "LpNormalization":
        node.attr("p", node.chance.number(1, 2))


def cumulative(node: SampledNode) -> None:
    shape = node.draw(0, node.shape if node.shape is not None else node.chance.shape(least=1))
    if not shape:
        raise Rejected("a scalar")
    axis = node.chance.number(-len(shape), len(shape) - 1)
    node.draw(1, (), values=np.asarray(axis, np.int64), dtype=ir.DataType.INT64)
    for name in ("exclusive", "reverse"):
        node.attr(name, int(node.chance.happens(0.3)))
