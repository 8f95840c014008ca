"""Hides operators of a model from a search: each becomes the call of a function that the search does not look into.

A function is how ONNX says that an operator is opaque: loading infers the types of its results from its body, and no
rule or kernel has a pattern for it.
"""

from __future__ import annotations

from collections.abc import Mapping

import onnx_ir as ir

from eqsat.schema.attributes import op_key
from eqsat.schema.types import OpKey


def hide_operators(model: ir.Model, original: ir.Model, opaque: Mapping[ir.Node, OpKey]) -> None:
    """Turns operators into calls of functions of their own.

    Args:
        model: A copy of ``original``; changed in place.
        original: The model that has the nodes.
        opaque: The functions by the nodes of the original that become their calls. A node that calls its function
            already is left as it is.
    """
    for scope, copied in zip(_scopes(original), _scopes(model), strict=True):
        for node, copy in zip(scope, copied, strict=True):
            op = opaque.get(node)
            if op is not None and op != op_key(node):
                function = _outlined(copy, copied, op)
                model.functions[function.identifier()] = function


def _scopes(model: ir.Model) -> list[ir.Graph | ir.Function]:
    return [model.graph, *model.functions.values()]


def _outlined(node: ir.Node, scope: ir.Graph | ir.Function, op: OpKey) -> ir.Function:
    """A function that contains a node, which becomes its call, without absent operands."""
    formal = [None if v is None or v.name == "" else _copy(v, f"operand_{i}") for i, v in enumerate(node.inputs)]
    results = [_copy(value, f"result_{i}") for i, value in enumerate(node.outputs)]
    inner = ir.Node(
        node.domain,
        node.op_type,
        formal,
        list(node.attributes.values()),
        overload=node.overload,
        outputs=results,
        name=node.name,
    )
    present = [v for v in formal if v is not None]
    graph = ir.Graph(present, results, nodes=[inner], opset_imports=dict(scope.opset_imports), name=op.name)
    given = [v for v in node.inputs if v is not None and v.name != ""]
    for i, value in enumerate(given):
        node.replace_input_with(i, value)
    node.resize_inputs(len(given))
    node.domain, node.op_type, node.overload = op.domain, op.name, ""
    node.attributes.clear()
    scope.opset_imports.setdefault(op.domain, 1)
    return ir.Function(op.domain, op.name, graph=graph, attributes=())


def _copy(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=value.shape)
