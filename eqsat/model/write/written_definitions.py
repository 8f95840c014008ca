"""Definitions of the operators that ONNX lacks, written into the files that call them.

An operator of eqsat is an ONNX function; with its body in the file every ONNX tool can run it. The body may depend
on the attributes in ways that references cannot express, so each combination of attributes is a function of its own.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

import onnx_ir as ir

from eqsat.model.write.body_function import write_function
from eqsat.schema.attributes import from_attrs, op_key, to_attrs, to_protos
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.declared_operators import find_function, function_body
from eqsat.schema.types import Attrs, OpKey


def with_definitions(model: ir.Model) -> ir.Model:
    """The model with a definition for every registered function that it calls and does not define.

    Args:
        model: Not changed.

    Returns:
        The model itself if nothing is missing, otherwise a copy.
    """
    if not any(_is_missing(model, node) for node in _nodes(model)):
        return model
    copy = model.clone()
    add_definitions(copy)
    return copy


def add_definitions(model: ir.Model) -> None:
    """The same in place."""
    writer = _Writer(model)
    calls = [node for node in _nodes(model) if _is_missing(model, node)]
    # The names depend on the definitions, not on the order of the calls.
    for call in sorted({_call(node) for node in calls}, key=_sort_key):
        writer.add(*call)
    for node in calls:
        writer.bind(node)


class _Writer:
    """Adds definitions to a model, callees before their callers."""

    def __init__(self, model: ir.Model) -> None:
        self.model = model
        self.taken = {(f.domain, f.name) for f in model.functions.values()}
        self.names: dict[tuple[OpKey, Attrs], str] = {}

    def add(self, op: OpKey, attrs: Attrs) -> None:
        if (op, attrs) in self.names:
            return
        name, k = op.name, 0
        while (op.domain, name) in self.taken:
            k += 1
            name = f"{op.name}_{k}"
        self.taken.add((op.domain, name))
        self.names[op, attrs] = name
        body, found = function_body(op, attrs), find_function(op)
        assert body is not None and found is not None
        function = define(OpKey(op.domain, name), body, found.inputs, attrs)
        for node in [n for n in function if find_function(op_key(n)) is not None]:
            self.add(*_call(node))
            self.bind(node)
        self.model.functions[function.identifier()] = function
        for domain, version in function.opset_imports.items():
            self.model.graph.opset_imports.setdefault(domain, version)
        self.model.graph.opset_imports.setdefault(op.domain, 1)

    def bind(self, node: ir.Node) -> None:
        """Turns a call into one of the definition for its attributes."""
        op, attrs = _call(node)
        for attribute in from_attrs(attrs, op):
            # onnx.reference requires a value for each attribute that the function declares.
            node.attributes[attribute.name] = attribute
        node.op_type = self.names[op, attrs]


def define(op: OpKey, body: Body, inputs: tuple[str, ...] = (), attrs: Attrs = ()) -> ir.Function:
    """A body as an ONNX function.

    Args:
        op: Domain and name of the function.
        body: The computation.
        inputs: Names of its inputs.
        attrs: Attributes that calls may give; their values are part of the body.
    """
    names = inputs if len(inputs) == body.inputs else tuple(f"input_{i}" for i in range(body.inputs))
    values = itertools.count(len(names))

    def write(step: BodyNode, operands: Sequence[ir.Value | None]) -> ir.Node:
        outputs = [ir.Value(name=f"v{next(values)}") for _ in range(step.outputs)]
        return ir.Node(step.op.domain, step.op.name, operands, from_attrs(step.attrs, step.op), outputs=outputs)

    def write_identity(value: ir.Value, number: int) -> ir.Node:
        return ir.Node("", "Identity", [value], outputs=[ir.Value(name=f"result_{number}")])

    declared = [ir.Attr(name, ir.AttributeType.UNDEFINED, None) for name, _ in attrs]
    return write_function(op, body, names, write, write_identity, lambda: declared)


def _nodes(model: ir.Model) -> Iterator[ir.Node]:
    yield from ir.traversal.RecursiveGraphIterator(model.graph)
    for function in model.functions.values():
        yield from function


def _is_missing(model: ir.Model, node: ir.Node) -> bool:
    return node.op_identifier() not in model.functions and find_function(op_key(node)) is not None


def _call(node: ir.Node) -> tuple[OpKey, Attrs]:
    op = op_key(node)
    found = find_function(op)
    assert found is not None
    return op, found.complete(to_attrs(node))


def _sort_key(call: tuple[OpKey, Attrs]) -> tuple[OpKey, bytes]:
    op, attrs = call
    return op, b"".join(proto.SerializeToString(deterministic=True) for proto in to_protos(attrs))
