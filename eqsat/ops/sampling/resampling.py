"""Resize: by factors or to sizes, in the modes and coordinates that ONNX names."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import Node

_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel")
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(node: Node) -> None:
    chance = node.chance
    shape = node.draw(0, node.shape or chance.shape(chance.number(2, 4)))
    mode = node.attr("mode", chance.one_of(("nearest", "linear")))
    node.attr("coordinate_transformation_mode", chance.one_of(_COORDINATES))
    if mode == "nearest":
        node.attr("nearest_mode", chance.one_of(_ROUNDING))
    if node.has(2) == node.has(3):
        raise Rejected("either factors or sizes")
    if node.has(1):
        node.draw(1, (2 * len(shape),), values=np.tile([0.0, 1.0], len(shape)), dtype=ir.DataType.FLOAT)
    # 1.25 keeps the size of up to three elements, and moves them nevertheless.
    some = (0.5, 1.0, 1.25, 2.0, 3.0)
    factors = [1.0 if i < 2 and chance.happens(0.7) else chance.one_of(some) for i in range(len(shape))]
    sizes = [max(int(d * f), 1) for d, f in zip(shape, factors, strict=True)]
    if node.has(2):
        node.draw(2, (len(shape),), values=np.asarray(factors, np.float32), dtype=ir.DataType.FLOAT)
    else:
        node.draw(3, (len(shape),), values=np.asarray(sizes, np.int64), dtype=ir.DataType.INT64)
