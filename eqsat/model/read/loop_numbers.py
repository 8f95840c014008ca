"""Loops whose bodies declare the number of the round, or the condition, as a tensor of one element.

ONNX only specifies scalars, but ONNX Runtime passes what the body declares, and PyTorch's exporter relies on it: such a
body computes other shapes. Here the body receives scalars, and reshapes them for its nodes.
"""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.model.inference.carried import keeps_condition
from eqsat.model.shadowing import defined_names
from eqsat.model.unused_names import unused
from eqsat.schema.attributes import tensor_of


def take_scalars(model: ir.Model) -> None:
    """Lets all bodies of loops take scalars, in place.

    Args:
        model: Before inference; values in functions have no declared types, so only the graph is visited.
    """
    taken: set[str] | None = None
    for node in list(ir.traversal.RecursiveGraphIterator(model.graph)):
        if node.op_type != "Loop" or node.domain not in ("", "ai.onnx") or "body" not in node.attributes:
            continue
        body = node.attributes["body"].as_graph()
        wide = [v for v in body.inputs[:2] if v.shape is not None and len(v.shape) == 1]
        if not wide:
            continue
        if taken is None:
            taken = {"", *defined_names(model.graph)}
        hands_on = keeps_condition(body)
        for value in wide:
            _widen_inside(value, body, taken)
        if body.inputs[1] in wide:
            _scalar_condition(node, body, hands_on, taken)


def _widen_inside(value: ir.Value, body: ir.Graph, taken: set[str]) -> None:
    """Lets the readers of a scalar input of a body read it as a tensor of one element."""
    value.shape = ir.Shape([])
    if not value.uses() and not value.is_graph_output():
        return
    wide = _reshape(value, [1], body, taken)
    value.replace_all_uses_with(wide.outputs[0], replace_graph_outputs=True)
    wide.replace_input_with(0, value)
    if len(body):
        body.insert_before(body[0], wide)
    else:
        body.append(wide)


def _scalar_condition(node: ir.Node, body: ir.Graph, hands_on: bool, taken: set[str]) -> None:
    """Makes the initial and the continuing conditions of a loop scalars."""
    begin, again, graph = node.inputs[1], body.outputs[0], node.graph
    assert isinstance(graph, ir.Graph)
    if begin is not None:
        flat = _reshape(begin, [], graph, taken)
        graph.insert_before(node, flat)
        node.replace_input_with(1, flat.outputs[0])
    if hands_on:  # It stays recognizable.
        flat = ir.Node("", "Identity", [body.inputs[1]])
        flat.outputs[0].name = unused(f"{again.name}_scalar", taken)
    else:
        flat = _reshape(again, [], body, taken)
    body.append(flat)
    flat.outputs[0].type, flat.outputs[0].shape = ir.TensorType(ir.DataType.BOOL), ir.Shape([])
    body.outputs[0] = flat.outputs[0]


def _reshape(value: ir.Value, shape: list[int], graph: ir.Graph, taken: set[str]) -> ir.Node:
    """A node, not in the graph yet, that gives a tensor of one element another rank."""
    node = ir.Node("", "Reshape", [value, _constant(graph, np.array(shape, np.int64), "one_element", taken)])
    node.outputs[0].name = unused(f"{value.name}_{'row' if shape else 'scalar'}", taken)
    return node


def _constant(graph: ir.Graph, array: np.ndarray, name: str, taken: set[str]) -> ir.Value:
    name = unused(name, taken)
    value = ir.Value(name=name, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(array.shape))
    value.const_value = tensor_of(array, ir.DataType.INT64, name)
    graph.register_initializer(value)
    return value
