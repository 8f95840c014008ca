"""Operators on images that sample or assemble regions: operands of several shapes that depend on each other."""

from __future__ import annotations

import math

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.schema.types import Shape

_INT64 = ir.DataType.INT64


def _image(node: SampledNode, i: int = 0) -> Shape:
    chance = node.chance
    shape = node.known(i)
    if shape is None:
        size = (chance.number(1, 2), chance.number(1, 3), chance.number(1, 5), chance.number(1, 5))
        shape = node.draw(i, size)
    if len(shape) != 4 or 0 in shape:
        raise Rejected("no image")
    return shape


def affine_grid(node: SampledNode) -> None:
    chance = node.chance
    n = chance.one_of((2, 2, 3))
    known = node.known(0)
    if known is not None and len(known) == 3:
        n = known[1]
    batch = known[0] if known is not None and known else chance.number(1, 2)
    node.draw(0, (batch, n, n + 1), dtype=ir.DataType.FLOAT)
    size = (batch, chance.number(1, 3), *(chance.number(1, 4) for _ in range(n)))
    node.draw(1, (len(size),), values=np.asarray(size, np.int64), dtype=_INT64)
    node.attr("align_corners", int(chance.happens(0.5)))


def grid_sample(node: SampledNode) -> None:
    chance, shape = node.chance, _image(node)
    node.attr("mode", chance.one_of(("linear", "nearest", "cubic")))
    node.attr("padding_mode", chance.one_of(("zeros", "border", "reflection")))
    node.attr("align_corners", int(chance.happens(0.5)))
    node.draw(1, (shape[0], chance.number(1, 4), chance.number(1, 4), 2))


def columns_to_image(node: SampledNode) -> None:
    chance = node.chance
    block = [chance.number(1, 3) for _ in range(2)]
    steps = [chance.number(1, 3) for _ in block]
    strides = node.attr("strides", tuple(chance.number(1, 2) for _ in block))
    dilations = node.attr("dilations", tuple(1 if chance.happens(0.7) else 2 for _ in block))
    pads = node.attr("pads", tuple(chance.number(0, 1) if chance.happens(0.3) else 0 for _ in range(4)))
    if len(strides) != 2 or len(dilations) != 2 or len(pads) != 4:
        raise Rejected("no image of two dimensions")
    image = [(s - 1) * step + d * (b - 1) + 1 for s, step, d, b in zip(steps, strides, dilations, block, strict=True)]
    image = [d - pads[i] - pads[i + 2] for i, d in enumerate(image)]
    if min(image) < 1:
        raise Rejected("no image")
    node.draw(0, (chance.number(1, 2), chance.number(1, 2) * math.prod(block), math.prod(steps)))
    node.draw(1, (2,), values=np.asarray(image, np.int64), dtype=_INT64)
    node.draw(2, (2,), values=np.asarray(block, np.int64), dtype=_INT64)


def max_unpool(node: SampledNode) -> None:
    """Indices as a pool of two by two without overlap returns them."""
    chance, shape = node.chance, _image(node)
    kernel = node.attr("kernel_shape", (2, 2))
    node.attr("strides", (2, 2))
    if tuple(kernel) != (2, 2) or tuple(node.attrs["strides"]) != (2, 2):
        raise Rejected("other windows")
    n, c, h, w = shape
    places = np.indices(shape)
    rows = 2 * places[2] + chance.rng.integers(0, 2, shape)
    cols = 2 * places[3] + chance.rng.integers(0, 2, shape)
    indices = ((places[0] * c + places[1]) * 2 * h + rows) * 2 * w + cols
    node.draw(1, shape, values=indices.astype(np.int64), dtype=_INT64)
    if node.has(2):
        node.draw(2, (4,), values=np.asarray((n, c, 2 * h, 2 * w), np.int64), dtype=_INT64)


def roi_align(node: SampledNode) -> None:
    chance, shape = node.chance, _image(node)
    for name in ("output_height", "output_width"):
        node.attr(name, chance.number(1, 3))
    node.attr("sampling_ratio", chance.number(0, 2))
    node.attr("mode", chance.one_of(("avg", "max")))
    node.attr("coordinate_transformation_mode", chance.one_of(("half_pixel", "output_half_pixel")))
    node.attr("spatial_scale", chance.one_of((1.0, 0.5)))
    count = chance.number(1, 3)
    corners = np.sort(chance.rng.uniform(0, max(shape[2:]), (count, 2, 2)), axis=1).reshape(count, 4)
    node.draw(1, (count, 4), values=corners.astype(np.float16), dtype=node.dtype(0))
    node.draw(2, (count,), values=chance.rng.integers(0, shape[0], (count,)), dtype=_INT64)


def max_roi_pool(node: SampledNode) -> None:
    chance, shape = node.chance, _image(node)
    node.attr("pooled_shape", (chance.number(1, 3), chance.number(1, 3)))
    node.attr("spatial_scale", chance.one_of((1.0, 0.5)))
    count = chance.number(1, 3)
    batch = chance.rng.integers(0, shape[0], (count, 1))
    corners = np.sort(chance.rng.integers(0, max(shape[2:]), (count, 2, 2)), axis=1).reshape(count, 4)
    regions = np.concatenate([batch, corners], axis=1).astype(np.float16)
    node.draw(1, (count, 5), values=regions, dtype=node.dtype(0))


def deformable_convolution(node: SampledNode) -> None:
    chance, shape = node.chance, _image(node)
    group = node.attr("group", chance.one_of([g for g in (1, 1, 2, 3) if shape[1] % g == 0]))
    offsets = node.attr("offset_group", chance.one_of([g for g in (1, 1, 2, 3) if shape[1] % g == 0]))
    if group < 1 or shape[1] % group or offsets < 1 or shape[1] % offsets:
        raise Rejected("no groups")
    kernel = node.attr("kernel_shape", tuple(chance.number(1, min(2, d)) for d in shape[2:]))
    strides = node.attr("strides", tuple(chance.number(1, 2) for _ in range(2)))
    dilations = node.attr("dilations", tuple(1 if chance.happens(0.7) else 2 for _ in range(2)))
    pads = node.attr("pads", tuple(chance.number(0, k - 1) for k in (*kernel, *kernel)))
    if not len(kernel) == len(strides) == len(dilations) == 2 or len(pads) != 4:
        raise Rejected("no image of two dimensions")
    out = tuple(
        (shape[i + 2] + pads[i] + pads[i + 2] - dilations[i] * (kernel[i] - 1) - 1) // strides[i] + 1 for i in range(2)
    )
    if min(out) < 1:
        raise Rejected("no result")
    outputs = group * chance.number(1, 2)
    node.draw(1, (outputs, shape[1] // group, *kernel))
    node.draw(2, (shape[0], offsets * math.prod(kernel) * 2, *out))
    if node.has(3):
        node.draw(3, (outputs,))
    if node.has(4):
        node.draw(4, (shape[0], offsets * math.prod(kernel), *out))
