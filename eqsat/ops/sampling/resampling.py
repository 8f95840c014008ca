"""Resize: by factors or to sizes, in the modes and coordinates that ONNX names."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode

_COORDINATES = ("half_pixel", "asymmetric", "align_corners", "pytorch_half_pixel", "half_pixel_symmetric")
_REGIONAL = "tf_crop_and_resize"
_ROUNDING = ("round_prefer_floor", "round_prefer_ceil", "floor", "ceil")


def resize(node: SampledNode) -> None:
    chance = node.chance
    shape = node.draw(0, node.shape or chance.shape(chance.number(2, 4)))
    mode = node.attr("mode", chance.weighted({"nearest": 0.4, "linear": 0.4, "cubic": 0.2}))
    regional = node.has(1) and chance.happens(0.4)
    node.attr("coordinate_transformation_mode", _REGIONAL if regional else chance.one_of(_COORDINATES))
    if mode == "nearest":
        node.attr("nearest_mode", chance.one_of(_ROUNDING))
    elif chance.happens(0.2):
        node.attr("antialias", 1)
    if mode == "cubic":
        node.attr("cubic_coeff_a", chance.one_of((-0.75, -0.5)))
        node.attr("exclude_outside", int(chance.happens(0.4)))
    if node.has(2) == node.has(3):
        raise Rejected("either factors or sizes")
    if node.has(1):
        begin = [chance.one_of((0.0, 0.0, 0.25)) if regional else 0.0 for _ in shape]
        end = [chance.one_of((1.0, 1.0, 0.75, 1.5)) if regional else 1.0 for _ in shape]
        node.draw(1, (2 * len(shape),), values=np.asarray(begin + end), dtype=ir.DataType.FLOAT)
        if regional:
            node.attr("extrapolation_value", chance.one_of((0.0, 3.0)))
    # 1.25 keeps the size of up to three elements, and moves them nevertheless.
    some = (0.5, 1.0, 1.25, 2.0, 3.0)
    factors = [1.0 if i < 2 and chance.happens(0.7) else chance.one_of(some) for i in range(len(shape))]
    sizes = [max(int(d * f), 1) for d, f in zip(shape, factors, strict=True)]
    if node.has(2):
        node.draw(2, (len(shape),), values=np.asarray(factors, np.float32), dtype=ir.DataType.FLOAT)
    else:
        if chance.happens(0.2):
            node.attr("keep_aspect_ratio_policy", chance.one_of(("not_larger", "not_smaller")))
        node.draw(3, (len(shape),), values=np.asarray(sizes, np.int64), dtype=ir.DataType.INT64)
