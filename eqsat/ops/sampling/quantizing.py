"""Quantization: scales are positive, zero points have the quantized type; one for all or one per channel."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected
from eqsat.ops.sampling.node import SampledNode
from eqsat.ops.sampling.windows import convolution_shapes
from eqsat.schema.dtypes import BYTES, FLOAT8
from eqsat.schema.opset import MICROSOFT
from eqsat.schema.types import Shape


def _parameters(node: SampledNode, shape: Shape, scale: int, zero: int, dtype: ir.DataType | None) -> None:
    chance = node.chance
    own: Shape = ()
    if shape and chance.happens(0.4):
        axis = node.attr("axis", chance.number(-len(shape), len(shape) - 1))
        if not -len(shape) <= axis < len(shape):
            raise Rejected("no such axis")
        own = (shape[axis],)
        blocks = node.op.domain != MICROSOFT and shape[axis] % 2 == 0 and chance.happens(0.25)
        if blocks and node.attr("block_size", 2) == 2:
            at = axis % len(shape)
            own = (*shape[:at], shape[at] // 2, *shape[at + 1 :])
    found = node.draw(scale, own, fill="scale")
    if node.has(zero):
        node.draw(zero, found, dtype=dtype)


def quantize(node: SampledNode) -> None:
    shape = node.draw(0, node.shape)
    wished = node.result()
    kinds = (*BYTES, *node.named)
    dtype = wished if wished is not None and wished in kinds else node.usual(kinds)
    if not node.has(2) and node.op.domain != MICROSOFT:
        node.attr("output_dtype", int(dtype))
    if dtype in FLOAT8 and node.chance.happens(0.4):
        node.attr("saturate", 0)
    _parameters(node, shape, 1, 2, dtype)


def dequantize(node: SampledNode) -> None:
    dtype = node.dtype(0) if node.kind(0) == "known" else node.usual((*BYTES, ir.DataType.INT32, *node.named))
    shape = node.draw(0, node.shape, dtype=dtype)
    if node.has(2) and dtype == ir.DataType.INT32 and node.kind(2) == "input":
        node.draw(1, (), fill="scale")
        node.draw(2, (), values=np.zeros((), np.int32), dtype=dtype)
        return
    _parameters(node, shape, 1, 2, node.dtype(0))


def product(node: SampledNode) -> None:
    chance = node.chance
    rows, inner, columns = chance.number(1, 4), chance.number(1, 5), chance.number(1, 5)
    left = node.draw(0, (rows, inner))
    node.draw(3, (left[-1] if left else inner, columns))
    for i in (1, 4, 6):
        node.draw(i, (), fill="scale")
    for i in (2, 5, 7):
        node.draw(i, ())


def convolution(node: SampledNode) -> None:
    outputs = convolution_shapes(node, 0, 3)
    node.draw(1, (), fill="scale")
    node.draw(2, ())
    per_channel = node.chance.happens(0.4)
    node.draw(4, (outputs,) if per_channel else (), fill="scale")
    node.draw(5, node.known(4))
    node.draw(6, (), fill="scale")
    node.draw(7, ())
    if node.has(8):
        node.draw(8, (outputs,))
