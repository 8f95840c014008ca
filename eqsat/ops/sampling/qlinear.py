"""Operators on quantized tensors: each operand comes with a scale and a zero point, the result has its own.

The layouts follow ONNX Runtime's list of contrib operators. Operands are drawn as the float operator wants them.
"""

from __future__ import annotations

import onnx_ir as ir

from eqsat.ops.sampling.chance import Rejected, broadcast
from eqsat.ops.sampling.node import SampledNode
from eqsat.ops.sampling.products import gemm_sizes
from eqsat.ops.sampling.windows import global_pool, pool
from eqsat.schema.dtypes import BYTES
from eqsat.schema.opset import attribute_types
from eqsat.schema.types import Shape


def _byte(node: SampledNode, i: int) -> ir.DataType:
    """The element type of a quantized operand: the known one, otherwise one of the two."""
    if node.kind(i) == "known":
        return node.dtype(i)
    wished = node.result()
    return wished if wished is not None and wished in BYTES else node.usual(BYTES)


def _parameters(node: SampledNode, scale: int, dtype: ir.DataType, own: Shape = ()) -> None:
    """Draws a scale, and the zero point after it."""
    found = node.draw(scale, own, fill="scale", dtype=ir.DataType.FLOAT)
    if node.has(scale + 1):
        node.draw(scale + 1, found, dtype=dtype)


def binary(node: SampledNode) -> None:
    dtype = _byte(node, 0)
    left = node.draw(0, node.shape, dtype=dtype)
    node.draw(3, node.chance.partner(left), dtype=node.dtype(0))
    for scale in (1, 4, 6):
        _parameters(node, scale, node.dtype(0))


def where(node: SampledNode) -> None:
    dtype = _byte(node, 1)
    left = node.draw(1, node.shape, dtype=dtype)
    right = node.draw(4, node.chance.partner(left), dtype=node.dtype(1))
    node.draw(0, node.chance.partner(broadcast(left, right)), dtype=ir.DataType.BOOL)
    for scale in (2, 5, 7):
        _parameters(node, scale, node.dtype(1))


def concat(node: SampledNode) -> None:
    chance = node.chance
    shape = node.known(2) or node.shape or chance.shape(chance.number(1, 4))
    dtype = _byte(node, 2)
    axis = node.attr("axis", chance.number(-len(shape), len(shape) - 1))
    if not -len(shape) <= axis < len(shape):
        raise Rejected("no such axis")
    if node.count < 5 or (node.count - 2) % 3:
        raise Rejected("operands with a scale and a zero point each are required")
    for i in range(2, node.count, 3):
        own = list(shape)
        own[axis] = chance.number(1, 4)
        node.draw(i, tuple(own), dtype=dtype)
        _parameters(node, i + 1, dtype)
    _parameters(node, 0, dtype)


def average_pool(node: SampledNode) -> None:
    shape = node.known(0) or node.shape
    rank = len(shape) - 2 if shape is not None and len(shape) >= 3 else 2
    node.attr("dilations", (1,) * rank)  # The float operator has the attribute, this one has not.
    if shape is None:
        node.shape = node.chance.shape(4)
    pool(node)
    node.attr("count_include_pad", int(node.chance.happens(0.4)))
    node.attrs.pop("dilations")
    _result(node)


def global_average_pool(node: SampledNode) -> None:
    global_pool(node)
    _result(node)


def unary(node: SampledNode) -> None:
    if "alpha" in attribute_types(node.op):
        node.real("alpha", 0.01, 0.5)
    node.draw(0, node.shape, dtype=_byte(node, 0))
    _result(node)


def softmax(node: SampledNode) -> None:
    shape = node.draw(0, node.shape or node.chance.shape(least=1), dtype=_byte(node, 0))
    node.attr("axis", node.chance.number(-len(shape), len(shape) - 1))
    node.attr("opset", 13)
    _result(node)


def _result(node: SampledNode) -> None:
    for scale in (1, 3):
        _parameters(node, scale, node.dtype(0))


def gemm(node: SampledNode) -> None:
    chance = node.chance
    a_turned, b_turned = (node.attr(name, int(chance.happens(0.4))) for name in ("transA", "transB"))
    if chance.happens(0.3):
        node.attr("alpha", chance.one_of((0.5, 2.0)))
    rows, inner, columns = gemm_sizes(node, (0, a_turned), (3, b_turned))
    dtype = _byte(node, 0)
    node.draw(0, (inner, rows) if a_turned else (rows, inner), dtype=dtype)
    weight = dtype if dtype == ir.DataType.INT8 else chance.one_of(BYTES)
    node.draw(3, (columns, inner) if b_turned else (inner, columns), dtype=weight)
    _parameters(node, 1, dtype)
    _parameters(node, 4, weight, (columns,) if chance.happens(0.3) else ())
    if node.has(6):
        node.draw(6, (columns,), dtype=ir.DataType.INT32)
    if node.has(7):
        _parameters(node, 7, dtype)


def requantize(node: SampledNode) -> None:
    kinds = (*BYTES, ir.DataType.INT32)
    node.draw(0, node.shape, dtype=node.chance.one_of(kinds))
    own = node.dtype(0)
    node.draw(1, (), fill="scale", dtype=ir.DataType.FLOAT)
    node.draw(2, (), dtype=own)
    node.draw(3, (), fill="scale", dtype=ir.DataType.FLOAT)
    node.draw(4, (), dtype=node.chance.one_of(kinds))
    wished = node.result()
    node.attr("dtype", int(wished if wished is not None and wished in kinds else node.chance.one_of(kinds)))
