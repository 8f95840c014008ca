"""Moving nodes between a graph and the bodies in it, with names that stay unique."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.model.shadowing import defined_names
from eqsat.model.unused_names import unused
from eqsat.ops.evaluate import evaluate
from eqsat.ops.properties import is_deterministic
from eqsat.schema.attributes import array_of, op_key, subgraphs, tensor_of, to_attrs


class Editor:
    """Changes a graph in place, with unique names for new values.

    Args:
        top: The main graph that contains all changes.
    """

    def __init__(self, top: ir.Graph) -> None:
        self._taken = {"", *defined_names(top)}

    def name(self, wanted: str | None) -> str:
        """A name that no value has."""
        return unused(wanted or "value", self._taken)

    def constant(self, graph: ir.Graph, name: str, array: np.ndarray) -> ir.Value:
        """A new initializer."""
        dtype = ir.DataType.from_numpy(array.dtype)
        name = self.name(name)
        value = ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(array.shape))
        value.const_value = tensor_of(array, dtype, name)
        graph.register_initializer(value)
        return value

    def insert(self, before: ir.Node, op: str, inputs: Sequence[ir.Value | None], name: str, **attrs: int) -> ir.Value:
        """A new node in front of another one; its result."""
        node = ir.Node("", op, inputs, [ir.AttrInt64(k, v) for k, v in attrs.items()])
        node.outputs[0].name = self.name(name)
        graph = before.graph
        assert graph is not None
        graph.insert_before(before, node)
        return node.outputs[0]

    def copy_in(self, body: ir.Graph, before: ir.Node, inputs: dict[ir.Value, ir.Value]) -> list[ir.Value]:
        """Inserts a copy of a body before a node, and returns the values of the body's outputs.

        Args:
            body: Not changed.
            before: The node.
            inputs: A value for each input of the body.
        """
        graph = before.graph
        assert isinstance(graph, ir.Graph)
        copy = body.clone(allow_outer_scope_values=True)
        known = dict(zip(copy.inputs, (inputs[v] for v in body.inputs), strict=True))
        for value in list(copy.initializers.values()):
            copy.initializers.pop(value.name or "")
            value.name = self.name(value.name)
            graph.register_initializer(value)
        outputs = list(copy.outputs)
        copy.outputs.clear()
        nodes = list(copy)
        for value, other in known.items():
            value.replace_all_uses_with(other)
        copy.remove(nodes)
        for value in _defined(nodes):
            value.name = self.name(value.name)
        graph.insert_before(before, nodes)
        return [known.get(v, v) for v in outputs]

    def replace(self, value: ir.Value, other: ir.Value, node: ir.Node) -> None:
        """Lets the readers of a node's output read another value; outputs of the graph keep their name."""
        graph = node.graph
        assert isinstance(graph, ir.Graph)
        if value.is_graph_output():
            bridge = ir.Node("", "Identity", [other])
            graph.insert_before(node, bridge)
            made = bridge.outputs[0]
            made.name, value.name = value.name, self.name(value.name)
            made.type, made.shape = value.type, value.shape
            graph.outputs[:] = [made if v is value else v for v in graph.outputs]
            other = made
        value.replace_all_uses_with(other)


def _defined(nodes: Iterable[ir.Node]) -> Iterator[ir.Value]:
    """All values that nodes and the bodies in them define."""
    for node in nodes:
        yield from node.outputs
        for body in subgraphs(node):
            yield from body.inputs
            yield from tuple(body.initializers.values())  # the caller may rename them
            yield from _defined(body)


def is_read(value: ir.Value) -> bool:
    """Whether a node or the graph's caller reads a value."""
    return bool(value.uses()) or value.is_graph_output()


def constant_of(value: ir.Value | None) -> np.ndarray | None:
    """The contents of an initializer or of a small Constant; None for other values."""
    if value is None:
        return None
    if value.is_initializer() and value.const_value is not None:
        return array_of(value.const_value)
    node = value.producer()
    if node is not None and node.op_type == "Constant" and not node.domain and "value" in node.attributes:
        return array_of(node.attributes["value"].as_tensor())
    return None


def number_of(value: ir.Value | None, followed: int = 8) -> np.ndarray | None:
    """A number that is a constant or computed from constants; None for other values.

    Args:
        value: A scalar or a tensor of one element.
        followed: The longest chain of operators.
    """
    known = constant_of(value)
    if known is not None:
        return known if known.size == 1 else None
    node = None if value is None else value.producer()
    if node is None or node.domain or not followed or len(node.outputs) != 1 or not is_deterministic(op_key(node)):
        return None
    operands = [None if v is None else number_of(v, followed - 1) for v in node.inputs]
    if not operands or any(o is None and v is not None for o, v in zip(operands, node.inputs, strict=True)):
        return None
    try:
        (made,) = evaluate(op_key(node), to_attrs(node), operands)
    except EqsatError:
        return None
    return made if made is not None and made.size == 1 else None


def through_identities(value: ir.Value) -> ir.Value:
    """The value that a chain of Identity copies."""
    while (node := value.producer()) is not None and node.op_type == "Identity" and not node.domain:
        source = node.inputs[0]
        assert source is not None
        value = source
    return value


def rebuilt(node: ir.Node, inputs: Sequence[ir.Value | None], body: ir.Graph, kept: Sequence[int]) -> ir.Node:
    """A loop with other inputs and another body in the place of a loop.

    Args:
        node: It is removed; nothing may read the outputs that are not kept.
        inputs: Of the new node.
        body: Its body.
        kept: Which outputs stay, in order.
    """
    attributes = [a for name, a in node.attributes.items() if name != "body"]
    made = with_outputs(node, inputs, [*attributes, ir.AttrGraph("body", body)], kept)
    assert node.graph is not None
    node.graph.remove(node, safe=True)
    return made


def with_outputs(
    node: ir.Node, inputs: Sequence[ir.Value | None], attributes: Sequence[ir.Attr], kept: Sequence[int]
) -> ir.Node:
    """A node like another one, before it, that has taken over some of its outputs."""
    graph = node.graph
    assert graph is not None
    made = ir.Node(
        node.domain, node.op_type, inputs, attributes, num_outputs=len(kept),
        name=node.name, metadata_props=dict(node.metadata_props),
    )  # fmt: skip
    graph.insert_before(node, made)
    for value, k in zip(made.outputs, kept, strict=True):
        old = node.outputs[k]
        value.type, value.shape = old.type, old.shape
        value.name, old.name = old.name, None
        old.replace_all_uses_with(value, replace_graph_outputs=True)
    return made
