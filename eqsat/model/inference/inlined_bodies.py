"""Bodies of control flow without calls of functions, which ONNX's type inference of one node cannot see."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace

import onnx_ir as ir

from eqsat.model.inlining import inline_calls
from eqsat.model.write.written_definitions import add_definitions
from eqsat.schema.attributes import op_key
from eqsat.schema.declared_operators import find_function
from eqsat.schema.types import Attrs, AttrValue, GraphAttr

FunctionsByName = Mapping[ir.OperatorIdentifier, ir.Function]


def without_calls(attrs: Attrs, functions: FunctionsByName, opsets: Mapping[str, int]) -> Attrs:
    """The attributes of a node; in its bodies, calls of functions are inlined.

    Args:
        attrs: Attributes of the node; not changed.
        functions: Functions of the model; eqsat's own may be missing.
        opsets: Opset by domain, of the graph around the node.
    """

    def inlined(value: AttrValue) -> AttrValue:
        if not isinstance(value, GraphAttr):
            return value
        nodes = ir.traversal.RecursiveGraphIterator(value.graph)
        called = any(node.op_identifier() in functions or find_function(op_key(node)) is not None for node in nodes)
        return replace(value, graph=_inlined(value.graph, functions, opsets)) if called else value

    return tuple((name, inlined(value)) for name, value in attrs)


def _inlined(graph: ir.Graph, functions: FunctionsByName, opsets: Mapping[str, int]) -> ir.Graph:
    copy = graph.clone(allow_outer_scope_values=True)
    copy.opset_imports.update(opsets)
    model = ir.Model(copy, ir_version=10, functions=[function.clone() for function in functions.values()])
    # Operators of eqsat are functions as well.
    add_definitions(model)
    inline_calls(model)
    copy.opset_imports.clear()
    return copy
