"""Reads kernels from the nodes of a partitioned model: name, operator, attributes, and constant operands."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.model.normalize import complete
from eqsat.partition.onnx_nodes import COMPOSITE, REGION, TARGET
from eqsat.partition.read_plan import operand_places
from eqsat.schema.attributes import array_of, op_key, to_attrs
from eqsat.schema.declared_operators import declared_name, find_declared
from eqsat.schema.types import Attrs, OpKey, TensorAttr, tensor_type

_CONSTANT = OpKey("", "Constant")


def called_regions(model: ir.Model) -> Iterator[tuple[ir.Node, ir.Function]]:
    """The calls of regions in a model and in the bodies of its control flow, with their functions."""
    for node in ir.traversal.RecursiveGraphIterator(model.graph):
        function = model.functions.get(node.op_identifier())
        if function is not None and REGION in function.metadata_props:
            yield node, function


def kernel_nodes(scope: ir.Function) -> list[ir.Node]:
    """The nodes of a region that are kernels."""
    return [node for node in scope if not is_constant(node)]


def is_constant(node: ir.Node) -> bool:
    """Whether a node is nothing but an array."""
    return op_key(node) == _CONSTANT and "value" in node.attributes and not node.attributes["value"].is_ref()


def operator_of(node: ir.Node, target: str) -> str:
    """The name of a kernel: ``npu.conv_relu``, ``Add``."""
    composite = node.metadata_props.get(COMPOSITE)
    return f"{target}.{composite.rpartition('.')[2]}" if composite else str(key_of(node))


def key_of(node: ir.Node) -> OpKey:
    """The operator of a node, also of one that calls the function of a declared operator."""
    return declared_name(op_key(node))


def is_declared(node: ir.Node) -> bool:
    """Whether a user has declared the operator of a node."""
    declared = find_declared(key_of(node))
    return declared is not None and bool(declared.place)


def attributes_of(node: ir.Node) -> dict[str, Any]:
    """Attributes by name; those of an operator are complete."""
    attrs = to_attrs(node)
    if COMPOSITE not in node.metadata_props:
        attrs = complete(key_of(node), attrs, [known_type(v) for v in node.inputs], len(node.outputs))
    return plain(attrs)


def known_type(value: ir.Value | None) -> Any:
    """The type of a value, None where it is absent or unknown."""
    return None if value is None else tensor_type(value)


def plain(attrs: Attrs) -> dict[str, Any]:
    """Attributes as Python values and arrays."""
    return {name: value.array if isinstance(value, TensorAttr) else value for name, value in attrs}


def places_of(node: ir.Node, function: ir.Function | None) -> list[int]:
    """The operand of its kernel for each input of a node, because a composite's function omits absent operands."""
    return list(range(len(node.inputs))) if function is None else operand_places(function)


def known_constants(call: ir.Node | None, function: ir.Function) -> dict[ir.Value, np.ndarray]:
    """Values in a region's function that are constant: those that the call passes, and the function's own."""
    found: dict[ir.Value, np.ndarray] = {}
    if call is not None:
        for outer, inner in zip(call.inputs, function.inputs, strict=False):
            array = constant_of(outer)
            if array is not None:
                found[inner] = array
    for node in function:
        if is_constant(node):
            found[node.outputs[0]] = array_of(node.attributes["value"].as_tensor())
    return found


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The elements of an initializer that no caller may override; None for any other value."""
    if value is None or value.const_value is None or not value.is_initializer() or value.is_graph_input():
        return None
    return array_of(value.const_value)


def composite_of(node: ir.Node, functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> ir.Function | None:
    """The function of the composite that a node calls."""
    function = functions.get(node.op_identifier())
    marks = {} if function is None else function.metadata_props
    return function if TARGET in marks and REGION not in marks else None
