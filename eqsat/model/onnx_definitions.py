"""Operators by their definitions: an operator that ONNX defines by simpler operators needs no kernel of its own.

Definitions come from ONNX (``FunctionBody`` of a schema, fixed or built for given types), from eqsat's functions, and
from declarations of operators of ``com.microsoft``.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import onnx
import onnx_ir as ir

from eqsat.ops.operators import operator
from eqsat.schema import opset
from eqsat.schema.attributes import default_attrs, plain_value, to_attrs, to_protos
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import find_function, function_body
from eqsat.schema.types import Attrs, OpKey, TensorType


def has_definition(op: OpKey) -> bool:
    """Whether an operator is defined in terms of others, for some types of its inputs."""
    schema: Any = opset.find_schema(op)
    if find_function(op) is not None or operator(op).definition is not None:
        return True
    return schema is not None and bool(schema.has_function or schema.has_context_dependent_function)


def definition_opset(op: OpKey) -> int | None:
    """The opset in which ONNX writes the definition of an operator, None if it has no definition."""
    schema: Any = opset.find_schema(op)
    if schema is None:
        return None
    of_types = schema.has_context_dependent_function
    versions = schema.context_dependent_function_opset_versions if of_types else schema.function_opset_versions
    return max((v for v in versions if v <= opset.PINNED_OPSET), default=None)


def definition(op: OpKey, attrs: Attrs, inputs: Sequence[TensorType | None]) -> Body | None:
    """The body of an operator for given attributes and types of inputs, None if it has no definition."""
    own = function_body(op, attrs)
    if own is not None:
        return own
    made = operator(op).definition
    if made is not None:
        return made({**dict(default_attrs(op)), **dict(attrs)}, inputs)
    schema = opset.find_schema(op)
    if schema is None:
        return None
    node = onnx.helper.make_node(
        op.name,
        [f"%{i}" if known is not None else "" for i, known in enumerate(inputs)],
        [f"%out{i}" for i in range(len(schema.outputs))],
        domain=op.domain,
    )
    node.attribute.extend(to_protos(attrs, op))
    proto = _function(schema, node, inputs)
    return _body(proto, attrs, len(inputs)) if proto is not None else None


def _function(schema: Any, node: onnx.NodeProto, inputs: Sequence[TensorType | None]) -> onnx.FunctionProto | None:
    found = onnx.FunctionProto()
    version = definition_opset(OpKey(schema.domain, schema.name))
    if version is None:
        return None
    if schema.has_context_dependent_function:
        types = []
        for known in inputs:
            proto = onnx.TypeProto()
            if known is not None:
                proto.tensor_type.elem_type = known.dtype.value
                for d in known.shape or ():
                    proto.tensor_type.shape.dim.add(dim_value=d if isinstance(d, int) else 0)
            types.append(proto.SerializeToString())
        data = schema.get_context_dependent_function_with_opset_version(version, node.SerializeToString(), types)
        found.ParseFromString(data)
        # Empty for attributes and types that the function does not cover.
        return found if found.node else None
    found.ParseFromString(schema.get_function_with_opset_version(version))
    return found


def _body(proto: onnx.FunctionProto, attrs: Attrs, given: int) -> Body | None:
    """A straight-line function as a body; None if it has control flow or operators newer than the pinned opset."""
    numbers: dict[str, int | None] = {"": None}
    for i, name in enumerate(proto.input):
        numbers[name] = i
    count = max(len(proto.input), given)
    bound = dict(_defaults(proto)) | dict(attrs)
    nodes: list[BodyNode] = []
    for node in proto.node:
        if any(a.type in (onnx.AttributeProto.GRAPH, onnx.AttributeProto.GRAPHS) for a in node.attribute):
            return None
        copy = onnx.NodeProto()
        copy.CopyFrom(node)
        references = {a.ref_attr_name: a.name for a in node.attribute if a.ref_attr_name}
        # A node read alone lacks the values of the function.
        del copy.attribute[:], copy.input[:], copy.output[:]
        copy.attribute.extend(a for a in node.attribute if not a.ref_attr_name)
        for outer, inner in sorted(references.items()):
            value = bound.get(outer)
            if value is None:
                continue
            (proto_attribute,) = to_protos(((inner, value),), OpKey(node.domain, node.op_type))
            copy.attribute.append(proto_attribute)
        made = ir.from_proto(copy)
        op = OpKey(opset.canonical_domain(node.domain), node.op_type)
        if opset.find_schema(op) is None and find_function(op) is None:
            return None
        nodes.append(BodyNode(op, to_attrs(made), tuple(numbers[n] for n in node.input), len(node.output)))
        for name in node.output:
            numbers[name] = count
            count += 1
    results = [numbers[name] for name in proto.output]
    if any(r is None for r in results):
        return None
    return Body(max(len(proto.input), given), tuple(nodes), tuple(r for r in results if r is not None))


def _defaults(proto: onnx.FunctionProto) -> Attrs:
    """Default values of a function's attributes."""
    return tuple((a.name, plain_value(ir.from_proto(a))) for a in proto.attribute_proto)
