"""Bodies as ONNX functions."""

from __future__ import annotations

import itertools
from collections.abc import Mapping, Sequence

import onnx_ir as ir

from eqsat.model.unused_names import Namer
from eqsat.model.write.body_function import write_function
from eqsat.partition.onnx_nodes import make_node
from eqsat.schema import opset
from eqsat.schema.attributes import from_attrs
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey


def body_function(
    op: OpKey,
    body: Body,
    attributes: tuple[tuple[ir.Attr, ...], ...] | None = None,
    parameters: tuple[tuple[str | None, ...], ...] | None = None,
    inputs: tuple[str, ...] = (),
) -> ir.Function:
    """A body as an ONNX function.

    Args:
        op: Domain and name of the function.
        body: The computation.
        attributes: Attributes of each node; by default those in the body.
        parameters: Per node and attribute the function's attribute to which it refers, None if the value is
            fixed; by default everything is fixed.
        inputs: Names of the inputs; by default those of the operators that read them first.
    """
    if attributes is None:
        attributes = tuple(tuple(from_attrs(node.attrs, node.op)) for node in body.nodes)
    namer = Namer()
    names = inputs if len(inputs) == body.inputs else _input_names(body)
    declared: dict[str, ir.Attr] = {}
    numbers = itertools.count()

    def write(node: BodyNode, operands: Sequence[ir.Value | None]) -> ir.Node:
        k = next(numbers)
        own = []
        for i, attribute in enumerate(attributes[k]):
            parameter = parameters[k][i] if parameters is not None else None
            if parameter is not None:
                declared[parameter] = ir.Attr(parameter, attribute.type, None)
                attribute = ir.RefAttr(attribute.name, parameter, attribute.type)
            own.append(attribute)
        outputs = [ir.Value(name=namer.keep(word(node.op))) for _ in range(node.outputs)]
        return make_node(node.op, own, operands, outputs, name=outputs[0].name)

    def write_identity(value: ir.Value, number: int) -> ir.Node:
        result = ir.Value(name=namer.keep("result"))
        return make_node(OpKey("", "Identity"), [], [value], [result], name=result.name)

    return write_function(op, body, [namer.keep(name) for name in names], write, write_identity, declared.values)


def bound_node(node: ir.Node, attributes: Mapping[str, ir.Attr]) -> ir.Node:
    """A node of a function, without operands, with the function's attributes in place of references to them."""
    own: list[ir.Attr] = []
    for attribute in node.attributes.values():
        if not attribute.is_ref():
            own.append(attribute)
            continue
        found = attributes.get(attribute.ref_attr_name or "")
        if found is not None and found.value is not None:
            own.append(ir.Attr(attribute.name, found.type, found.value))
    return ir.Node(
        node.domain, node.op_type, [None] * len(node.inputs), own, overload=node.overload, num_outputs=len(node.outputs)
    )  # fmt: skip


def _input_names(body: Body) -> list[str]:
    """Names each input after the input of the operator that reads it first."""
    names = [f"input_{i}" for i in range(body.inputs)]
    seen: set[int] = set()
    for node in body.nodes:
        schema = opset.find_schema(node.op)
        for position, v in enumerate(node.inputs):
            if v is not None and v < body.inputs and v not in seen and schema is not None and schema.inputs:
                names[v] = schema.inputs[min(position, len(schema.inputs) - 1)].name.lower()
                seen.add(v)
    return names


def word(op: OpKey) -> str:
    """An operator's name as part of other names."""
    return op.name.partition(":")[0].lower()
