"""Rewrites quantized operators, before fusion, into operators that fuse and need no memory of their own.

``QLinearConcat`` becomes a ``Concat`` of converted operands: each conversion goes into the epilogue of the operator
that computes the operand, and the concatenation is a matter of layout. A ``Gather`` that looks up bytes in a table
becomes a step on bytes, so that the indices are never written out as integers of 32 or 64 bits.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.codegen.kernel import Step
from eqsat.codegen.program import IDENTITY, Node, Operand, Program, Tensor
from eqsat.schema.types import OpKey

TABLE = OpKey("eqsat", "ByteTable")
"""A step that looks bytes up; its attribute ``table`` has 256 results by the bits of the operand."""
_QLINEAR_CONCAT = OpKey("com.microsoft", "QLinearConcat")
_GATHER = OpKey("", "Gather")
_BYTES = (ir.DataType.INT8, ir.DataType.UINT8)


def simplify_bytes(program: Program) -> None:
    """Rewrites the nodes in place."""
    producers = program.producers()
    nodes: list[Node] = []
    for node in program.nodes:
        made = None
        if node.operator == _QLINEAR_CONCAT and not node.steps:
            made = _concat(node)
        elif node.operator == _GATHER and not node.steps:
            made = _look_up(node, producers)
        nodes += [node] if made is None else made
    program.nodes = nodes
    program.remove_dead()


def _concat(node: Node) -> list[Node] | None:
    """Chains that convert operands to the result's parameters, and a ``Concat``; None if these are not all known."""
    y_scale, y_zero, *rest = node.inputs
    numbers = [y_scale, y_zero, *rest[1::3], *rest[2::3]]
    if any(not isinstance(n, np.ndarray) or n.size != 1 for n in numbers):
        return None
    made: list[Node] = []
    parts: list[Operand | None] = []
    for k, (x, scale, zero) in enumerate(zip(rest[::3], rest[1::3], rest[2::3], strict=True)):
        assert isinstance(scale, np.ndarray) and isinstance(zero, np.ndarray)
        assert isinstance(y_scale, np.ndarray) and isinstance(y_zero, np.ndarray)
        if not isinstance(x, Tensor):
            return None
        if float(scale.reshape(())) == float(y_scale.reshape(())) and int(zero.reshape(())) == int(y_zero.reshape(())):
            parts.append(x)
            continue
        converted = Tensor(f"{node.output.name}_{k}", x.dtype, x.shape)
        steps = [
            Step(OpKey("", "DequantizeLinear"), {"axis": 1, "block_size": 0}, (0, 1, 2), ir.DataType.FLOAT),
            Step(OpKey("", "QuantizeLinear"), {"axis": 1, "block_size": 0, "saturate": 1}, (5, 3, 4), x.dtype),
        ]
        operands: list[Operand] = [v.reshape(()) for v in (scale, zero, y_scale, y_zero)]
        made.append(Node(f"{node.name}_{k}", IDENTITY, {}, [x], [converted], x.dtype, operands, steps))
        parts.append(converted)
    concat = Node(
        node.name, OpKey("", "Concat"), {"axis": node.attributes["axis"]}, parts, list(node.outputs), node.dtype
    )
    return [*made, concat]


def _look_up(node: Node, producers: dict[Tensor, Node]) -> list[Node] | None:
    """A chain that looks bytes up, for ``Gather(table, Cast(bytes))``; None for anything else."""
    table, indices = node.inputs[0], node.inputs[1]
    if not isinstance(table, np.ndarray) or table.ndim != 1 or not isinstance(indices, Tensor):
        return None
    cast = producers.get(indices)
    if cast is None or not cast.is_chain or [s.operator for s in cast.steps] != [OpKey("", "Cast")]:
        return None
    x = cast.inputs[0]
    if not isinstance(x, Tensor) or x.dtype not in _BYTES or x.shape != node.output.shape:
        return None
    if node.output.dtype not in _BYTES or indices.dtype not in (ir.DataType.INT32, ir.DataType.INT64):
        return None
    every = np.arange(256, dtype=np.uint8).view(x.dtype.numpy()).astype(np.int64)
    if every.min() < -table.size or every.max() >= table.size:
        return None
    step = Step(TABLE, {"table": table[every]}, (0,), node.output.dtype)
    return [Node(node.name, IDENTITY, {}, [x], list(node.outputs), x.dtype, [], [step])]
