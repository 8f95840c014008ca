"""Rewrites operators that ONNX Runtime loads in a graph but not in a function.

``QLinearConcat`` is one: inside a function, ONNX Runtime 1.31 infers its result's type from the scale, finds a float
and refuses the file, although ``onnx.checker`` accepts it. In functions it is therefore written as operands converted
to the result's scale, and a ``Concat`` of integers.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.model.unused_names import Namer
from eqsat.ops.own_operators import REQUANTIZE
from eqsat.partition.onnx_nodes import make_node
from eqsat.schema import opset
from eqsat.schema.types import OpKey


def spell_for_function(body: ir.Graph | ir.Function) -> None:
    """Rewrites a function's nodes in place; definitions of operators of ours are added when the model is written."""
    nodes = list(body)
    namer = Namer(v.name or "" for node in nodes for v in (*node.inputs, *node.outputs) if v is not None)
    for node in nodes:
        if (node.domain, node.op_type) == (opset.MICROSOFT, "QLinearConcat"):
            replacement = _concatenation(node, namer)
            ir.convenience.replace_nodes_and_values(
                body, node, [node], replacement, node.outputs, replacement[-1].outputs
            )
    if any(node.domain == opset.EQSAT for node in body):
        body.opset_imports.setdefault(opset.EQSAT, opset.opset_version(opset.EQSAT))


def _concatenation(node: ir.Node, namer: Namer) -> Sequence[ir.Node]:
    scale, zero, *operands = node.inputs
    (result,) = node.outputs
    assert result.dtype is not None
    made: list[ir.Node] = []
    parts: list[ir.Value | None] = []
    for x, own_scale, own_zero in zip(operands[::3], operands[1::3], operands[2::3], strict=True):
        if own_scale is scale and own_zero is zero:
            parts.append(x)
            continue
        value = ir.Value(name=namer.keep("requantized"), type=result.type, shape=None if x is None else x.shape)
        dtype = ir.AttrInt64("dtype", int(result.dtype))
        axis = ir.AttrInt64("axis", 0)
        made.append(
            make_node(
                REQUANTIZE.op, [axis, dtype], [x, own_scale, own_zero, scale, zero], [value], name=value.name or ""
            )
        )
        parts.append(value)
    whole = ir.Value(name=result.name, type=result.type, shape=result.shape)
    made.append(make_node(OpKey("", "Concat"), [node.attributes["axis"]], parts, [whole], name=node.name or ""))
    made[-1].metadata_props.update(node.metadata_props)
    return made
