"""The body of an If, Loop or Scan as a model: captured values are inputs or constants, and all types are known."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import elements, is_sizes
from eqsat.model.load import load
from eqsat.model.shadowing import defined_names, defined_values
from eqsat.model.unused_names import unused
from eqsat.partition.subgraphs import bind_graph
from eqsat.schema.attributes import tensor_of
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size import bounds
from eqsat.schema.size_questions import as_dim


def body_model(
    model: ir.Model,
    graph: ir.Graph,
    given: Sequence[ProgramOperand],
    captured: Mapping[str, ProgramOperand],
    results: Sequence[int],
) -> ir.Model:
    """A body as a model of its own, loaded.

    Args:
        model: The model with the body; it is not changed.
        graph: The body.
        given: The operand for each input of the body; a constant becomes a constant of the model.
        captured: The outer values that the body reads, by name; tensors become inputs, in this order.
        results: Numbers of the body's outputs that the model returns.

    Returns:
        A model whose inputs are those of the body, then the captured values, without those that are constant. An array
        of sizes becomes a tensor with these sizes as its shape, whose elements are never read.

    Raises:
        ModelError: The body contradicts the types of its operands.
    """
    taken = {"", *defined_names(graph)}
    values = {name: ir.Value(name=unused(name, taken)) for name in captured}
    copy = bind_graph(graph, values, frozenset())
    own = set(defined_values(copy))
    outputs = [v if v in own else values[v.name or ""] for v in copy.outputs]
    operands = {**dict(zip(copy.inputs, given, strict=True)), **{values[name]: captured[name] for name in captured}}
    copy.inputs[:] = []
    for value, operand in operands.items():
        if isinstance(operand, np.ndarray) and is_sizes(operand):
            copy.inputs.append(_shown(copy, value, operand, taken))
            continue
        if isinstance(operand, ProgramTensor):
            copy.inputs.append(value)
        dtype = to_dtype(operand.dtype)
        value.type, value.shape = ir.TensorType(dtype), ir.Shape(list(map(as_dim, operand.shape)))
        if isinstance(operand, np.ndarray):
            value.const_value = tensor_of(operand, dtype, value.name)
            copy.register_initializer(value)
    copy.outputs[:] = [_returned(copy, outputs[k], unused(f"result_{k}", taken)) for k in results]
    copy.opset_imports.update(model.graph.opset_imports)
    functions = [function.clone() for function in model.functions.values()]
    return load(
        ir.Model(copy, ir_version=model.ir_version, functions=functions, metadata_props=dict(model.metadata_props))
    )


def _shown(graph: ir.Graph, value: ir.Value, sizes: np.ndarray, taken: set[str]) -> ir.Value:
    """A tensor whose shape says an array of sizes, from which nodes make the array before all others."""
    lowest = [min(bounds(n)[0], 0) for n in elements(sizes)]
    dims = [as_dim(n - low) for n, low in zip(elements(sizes), lowest, strict=True)]
    name = unused(f"{value.name}_sizes", taken)
    tensor = ir.Value(name=name, type=ir.TensorType(ir.DataType.BOOL), shape=ir.Shape(dims))
    made = [
        ir.node("Shape", [tensor]),
        ir.node("Constant", [], {"value_ints": ir.AttrInt64s("value_ints", lowest)}),
        ir.node("Constant", [], {"value_ints": ir.AttrInt64s("value_ints", sizes.shape)}),
    ]
    made.insert(2, ir.node("Add", [made[0].outputs[0], made[1].outputs[0]]))
    made.append(ir.node("Reshape", [made[2].outputs[0], made[3].outputs[0]], outputs=[value]))
    for number, node in enumerate(made[:-1]):
        node.outputs[0].name = unused(f"{name}_{number}", taken)
    graph.insert_before(graph[0], made)
    return tensor


def _returned(graph: ir.Graph, value: ir.Value, name: str) -> ir.Value:
    """A copy of a value, so that each output is one of its own and the result of a node."""
    node = ir.Node("", "Identity", [value])
    graph.append(node)
    node.outputs[0].name, node.outputs[0].type = name, value.type
    return node.outputs[0]
