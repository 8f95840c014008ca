"""Tidies a graph without types: restores weights, turns constants into initializers, removes unused values."""

from __future__ import annotations

from collections.abc import Container, Mapping

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from eqsat.model.outputs import required_outputs
from eqsat.ops.evaluate import constant_value
from eqsat.schema import opset
from eqsat.schema.attributes import op_key, tensor_of, to_attrs
from eqsat.schema.types import OpKey


def tidy(model: ir.Model, weights: Mapping[str, ir.TensorProtocol], needed: Container[str] = ()) -> None:
    """Tidies the main graph; subgraphs and functions are not changed.

    Args:
        model: The model, changed in place.
        weights: Tensors that reading has set aside: inputs that become initializers again.
        needed: Names of constants that stay although no node reads them.
    """
    graph = model.graph
    for value in list(graph.inputs):
        name = value.name or ""
        if name in weights:
            value.const_value = weights[name]
            graph.initializers[name] = value
    # An input with an initializer is one with a default; in old models all weights have that form. They are constants.
    kept = [value for value in graph.inputs if not value.is_initializer()]
    if len(kept) != len(graph.inputs):
        graph.inputs[:] = kept
    for node in list(graph):
        _constant_to_initializer(graph, node)
    for node in graph:
        _trim(node)
    named = _required_names(model.graph)
    kept = [value for name, value in graph.initializers.items() if name in needed]
    RemoveUnusedNodesPass()(model)
    graph.initializers.update({value.name or "": value for value in kept})
    for node, index, name in named:
        # The pass removes unused optional outputs, even those that go with a used one.
        node.resize_outputs(max(len(node.outputs), index + 1))
        node.outputs[index].name = name
    unread = [n for n, v in graph.initializers.items() if not v.uses() and not v.is_graph_output() and n not in needed]
    for name in unread:
        graph.initializers.pop(name)
    for value in graph.initializers.values():
        if value.const_value is not None:
            value.type = ir.TensorType(value.const_value.dtype)
            value.shape = ir.Shape(value.const_value.shape.numpy())


def _constant_to_initializer(graph: ir.Graph, node: ir.Node) -> None:
    """An initializer in the place of a Constant.

    The pass of onnx_ir leaves constants that are outputs of the graph, drops zeros at the end of strings, and changes
    subgraphs as well.
    """
    if node.op_type != "Constant" or node.domain:
        return
    value = node.outputs[0]
    attribute = next(iter(node.attributes.values()), None)
    if attribute is None or not value.name:
        return
    if attribute.type == ir.AttributeType.TENSOR:
        tensor = attribute.value
    else:
        attrs = to_attrs(node)
        array = constant_value(attrs)
        if array is None:
            return  # a sparse constant stays a node
        dtype = ir.DataType.STRING if array.dtype == object else ir.DataType.from_numpy(array.dtype)
        tensor = tensor_of(array, dtype)
    held = ir.Value(name=value.name, type=ir.TensorType(tensor.dtype), shape=ir.Shape(tensor.shape.numpy()))
    held.const_value = tensor
    held.metadata_props.update(value.metadata_props)
    value.replace_all_uses_with(held, replace_graph_outputs=True)
    graph.remove(node, safe=True)
    if tensor.name != value.name:
        tensor = _named(tensor, value.name)
        held.const_value = tensor
    graph.register_initializer(held)


def _named(tensor: ir.TensorProtocol, name: str) -> ir.TensorProtocol:
    try:
        tensor.name = name
    except AttributeError:
        return tensor_of(tensor.numpy(), tensor.dtype, name)
    return tensor


_DROPOUT = OpKey("", "Dropout")


def _required_names(graph: ir.Graph) -> list[tuple[ir.Node, int, str]]:
    """Outputs without readers that must be present, with their names."""
    found = []
    for node in graph.all_nodes():
        if len(node.outputs) > 1:
            read = {i for i, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()}
            unread = required_outputs(op_key(node), to_attrs(node), len(node.inputs), read) - read if read else ()
            found += [
                (node, i, node.outputs[i].name or f"{node.outputs[0].name}_{i}")
                for i in sorted(unread)
                if i < len(node.outputs)
            ]
    return found


def _trim(node: ir.Node) -> None:
    """Cuts absent inputs and unused optional outputs off the end, and the training inputs of Dropout."""
    op = op_key(node)
    if op == _DROPOUT and len(node.inputs) > 1 and is_false(node.inputs[2] if len(node.inputs) > 2 else None):
        node.resize_inputs(1)
    count = len(node.inputs)
    while count and node.inputs[count - 1] is None:
        count -= 1
    if count != len(node.inputs):
        node.resize_inputs(count)
    if len(node.outputs) > 1:
        schema = opset.find_schema(op)
        if schema is None:
            return
        used = len(node.outputs)
        formal = schema.outputs
        read = {i for i, v in enumerate(node.outputs) if v.uses() or v.is_graph_output()}
        least = max((i + 1 for i in required_outputs(op, to_attrs(node), len(node.inputs), read)), default=1)
        while used > max(schema.min_output, least) and used <= len(formal):
            value = node.outputs[used - 1]
            optional = formal[used - 1].option == _OPTIONAL
            if not optional or value.uses() or value.is_graph_output():
                break
            used -= 1
        if used != len(node.outputs):
            node.resize_outputs(used)


_OPTIONAL = opset.Schema.FormalParameterOption.Optional


def is_false(value: ir.Value | None) -> bool:
    """Whether an optional flag is absent or a constant false."""
    if value is None:
        return True
    tensor = value.const_value if value.is_initializer() else None
    return tensor is not None and tensor.size == 1 and not bool(tensor.numpy().reshape(()))
