"""Functions that a program still calls: those of the input model, and those that eqsat defines.

The definition of a function of eqsat may depend on its attributes in ways that ONNX cannot express by references (a
table computed from an axis). Each combination of attributes that occurs is therefore a function of its own; the
first one has the operator's name.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from eqsat.model.unused_names import Namer
from eqsat.partition.function_bodies import body_function
from eqsat.schema.attributes import from_attrs, to_attrs, to_protos
from eqsat.schema.body import Body
from eqsat.schema.declared_operators import find_function
from eqsat.schema.types import Attrs, OpKey


def add_called_functions(
    nodes: Sequence[ir.Node], functions: Sequence[ir.Function], original: ir.Model
) -> list[ir.Function]:
    """Functions that must be added to a model, callees before their callers.

    Args:
        nodes: Nodes of the main graph. Calls of eqsat's functions are renamed if there are several definitions.
        functions: Functions of the model; calls in them are renamed likewise.
        original: The model whose functions may be called.

    Returns:
        Copies of the original's functions and functions of eqsat, as far as they are called.
    """
    return _Collector(original).collect([*(n for f in functions for n in f), *nodes])


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Nodes of a node's subgraphs, including nested ones."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            for inner in attribute.as_graph():
                yield inner
                yield from inner_nodes(inner)


def all_nodes(nodes: Iterable[ir.Node]) -> Iterator[ir.Node]:
    """Nodes with those of their subgraphs, each before them."""
    for node in nodes:
        yield node
        yield from inner_nodes(node)


def is_function(op: OpKey) -> bool:
    """Whether eqsat itself defines the operator as a function."""
    return find_function(op) is not None


class _Collector:
    def __init__(self, original: ir.Model) -> None:
        self.original = original
        self.kept: dict[ir.OperatorIdentifier, ir.Function] = {}
        self.variants: dict[tuple[OpKey, Attrs], ir.Function] = {}
        self.calls: list[tuple[ir.Node, ir.Function]] = []
        self.order: list[ir.Function] = []

    def collect(self, nodes: Iterable[ir.Node]) -> list[ir.Function]:
        for node in nodes:
            self._visit(node)
        taken = {(f.domain, f.name) for f in self.kept.values()}
        families: dict[OpKey, list[tuple[bytes, ir.Function]]] = {}
        for (op, attrs), function in self.variants.items():
            families.setdefault(op, []).append((_sort_key(attrs), function))
        for op, family in sorted(families.items()):
            namer = Namer(name for domain, name in taken if domain == op.domain)
            for _, function in sorted(family, key=lambda pair: pair[0]):
                function.name = namer.keep(op.name)
        for node, function in self.calls:
            node.op_type = function.name
        return self.order

    def _visit(self, top: ir.Node) -> None:
        for node in (top, *inner_nodes(top)):
            op = OpKey(node.domain, node.op_type)
            function = self.original.functions.get(node.op_identifier())
            if function is not None:
                if node.op_identifier() not in self.kept:
                    copy = function.clone()
                    for inner in copy:
                        self._visit(inner)
                    self.kept[node.op_identifier()] = copy
                    self.order.append(copy)
            elif is_function(op):
                key = op, _complete(op, to_attrs(node))
                for attribute in from_attrs(key[1], op):
                    # onnx.reference wants a value for everything that is declared.
                    node.attributes.add(attribute)
                if key not in self.variants:
                    made = _define(*key)
                    for inner in made:
                        self._visit(inner)
                    self.variants[key] = made
                    self.order.append(made)
                self.calls.append((node, self.variants[key]))


def _define(op: OpKey, attrs: Attrs) -> ir.Function:
    body, inputs = _definition(op, attrs)
    function = body_function(op, body, inputs=inputs)
    for name, _ in attrs:
        # The values are part of the definition; the names are declared so that calls can give values.
        function.attributes.add(ir.Attr(name, ir.AttributeType.UNDEFINED, None))
    return function


def _complete(op: OpKey, attrs: Attrs) -> Attrs:
    found = find_function(op)
    return attrs if found is None else found.complete(attrs)


def _definition(op: OpKey, attrs: Attrs) -> tuple[Body, tuple[str, ...]]:
    found = find_function(op)
    assert found is not None
    return found.body(dict(attrs)), found.inputs


def _sort_key(attrs: Attrs) -> bytes:
    return b"".join(proto.SerializeToString(deterministic=True) for proto in to_protos(attrs))
