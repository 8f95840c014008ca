"""Operators that work element by element, with the shapes that broadcasting allows."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import broadcast
from eqsat.ops.sampling.node import Fill, SampledNode
from eqsat.ops.sampling.plain import attributes, plain
from eqsat.schema.dtypes import FLOAT8
from eqsat.schema.types import Shape

_ORDER = {"known": 0, "node": 1, "input": 2, "constant": 3, "number": 4}
_EQUAL = {"node": 0.75, "input": 0.6, "constant": 0.3, "number": 0.15}
_LARGER = {"node": 0.1, "input": 0.1, "constant": 0.08, "number": 0.06}


def together(node: SampledNode, fills: dict[int, Fill] | None = None, first: int = 0) -> None:
    """Operands from ``first`` on whose shapes broadcast, to the wished shape if there is one."""
    order = sorted((i for i in range(first, node.count) if node.has(i)), key=lambda i: (_ORDER[node.kind(i)], i))
    shape: Shape | None = None
    for i in order:
        kind = node.kind(i)
        wish: Shape | None
        if shape is None:
            wish = node.shape if node.shape is not None else None
            if wish is None and kind != "known":
                wish = node.chance.shape()
        else:
            wish = node.chance.partner(shape, equal=_EQUAL.get(kind, 1.0), larger=_LARGER.get(kind, 0.0))
        found = node.draw(i, wish, fill=(fills or {}).get(i, "any"))
        shape = found if shape is None else broadcast(shape, found)


def binary(node: SampledNode) -> None:
    """Any operands."""
    if node.op.name == "PRelu" and node.kind(0) != "known":
        node.draw(0, node.shape)
    together(node)


def divide(node: SampledNode) -> None:
    if node.op.name == "Mod":
        node.attr("fmod", int(node.dtype(0).is_floating_point() or node.chance.happens(0.3)))
    together(node, {1: "nonzero"})


def shift(node: SampledNode) -> None:
    node.attr("direction", node.chance.one_of(("LEFT", "RIGHT")))
    together(node)


def power(node: SampledNode) -> None:
    together(node, {0: "positive"} if node.chance.happens(0.6) else {0: "nonzero"})


def where(node: SampledNode) -> None:
    together(node, first=0)


def positive(node: SampledNode) -> None:
    node.draw(0, node.shape, fill="positive")


def unit(node: SampledNode) -> None:
    node.draw(0, node.shape, fill="unit")


def reciprocal(node: SampledNode) -> None:
    node.draw(0, node.shape, fill="nonzero")


def infinite(node: SampledNode) -> None:
    for name in ("detect_negative", "detect_positive"):
        node.attr(name, int(node.chance.happens(0.8)))
    node.draw(0, node.shape)


def clip(node: SampledNode) -> None:
    """Bounds are scalars, mostly in order."""
    node.draw(0, node.shape)
    dtype = node.dtype(0)
    low, high = sorted(np.asarray(node.chance.rng.integers(-8, 9, 2)) / (4 if dtype.is_floating_point() else 1))
    if not dtype.is_signed():
        low, high = abs(low), max(abs(low), abs(high))
    if node.chance.happens(0.05):
        low, high = high, low
    for i, bound in ((1, low), (2, high)):
        if node.has(i):
            fixed = node.kind(i) == "input" and node.chance.happens(0.7)
            node.draw(i, (), values=np.asarray(bound).astype(dtype.numpy()) if fixed else None)


def cast(node: SampledNode) -> None:
    """To the same type, to the type that the rule wishes for, or to any."""
    same = node.chance.happens(0.35)
    types = (
        ir.DataType.FLOAT,
        ir.DataType.DOUBLE,
        ir.DataType.INT32,
        ir.DataType.INT8,
        ir.DataType.UINT8,
        ir.DataType.INT64,
    )
    other = node.kind(0) == "node" and node.chance.happens(0.7)
    other = other or (node.kind(0) != "known" and "to" in node.required and node.chance.happens(0.7))
    node.draw(0, node.shape, dtype=node.chance.one_of(types) if other else None)
    wished = node.result()
    to = node.attr("to", int(node.dtype(0) if same else wished if wished is not None else node.chance.one_of(types)))
    if ir.DataType(to) in FLOAT8 and node.chance.happens(0.4):
        node.attr("saturate", 0)


def activation(node: SampledNode) -> None:
    attributes(node)
    if node.op.name == "Celu" and node.attrs.get("alpha") == 0:
        node.attrs["alpha"] = 1.0
    if node.op.name == "Gelu" and not node.op.domain:
        node.attr("approximate", node.chance.one_of(("none", "tanh")))
    plain(node)
