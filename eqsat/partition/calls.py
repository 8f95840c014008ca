"""Functions that a program still calls: those of the input model, and those that eqsat itself defines."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import onnx_ir as ir

from eqsat.model import opset
from eqsat.model.types import OpKey
from eqsat.partition.composites import body_function


def called_functions(
    nodes: Sequence[ir.Node], functions: Sequence[ir.Function], original: ir.Model
) -> list[ir.Function]:
    """Functions that must be added to a model, callees before their callers.

    Args:
        nodes: Of the main graph.
        functions: That the model already has.
        original: The model whose functions may be called.

    Returns:
        Copies of the original's functions and functions of :mod:`eqsat.model.opset`, as far as they are called.
    """
    found: dict[ir.OperatorIdentifier, ir.Function] = {}

    def visit(callers: Iterable[ir.Node]) -> None:
        for node in callers:
            key = node.op_identifier()
            if key in found:
                continue
            function = _function(node, original)
            if function is not None:
                visit(_within(function))
                found[key] = function

    for function in functions:
        visit(_within(function))
    for node in nodes:
        visit((node, *inner_nodes(node)))
    return list(found.values())


def inner_nodes(node: ir.Node) -> Iterator[ir.Node]:
    """Nodes of a node's subgraphs, of the subgraphs of those, and so on."""
    for attribute in node.attributes.values():
        if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
            for inner in attribute.as_graph():
                yield inner
                yield from inner_nodes(inner)


def _within(function: ir.Function) -> Iterator[ir.Node]:
    for node in function:
        yield node
        yield from inner_nodes(node)


def _function(node: ir.Node, original: ir.Model) -> ir.Function | None:
    kept = original.functions.get(node.op_identifier())
    if kept is not None:
        return kept.clone()
    op = OpKey(node.domain, node.op_type)
    body = opset.function_body(op)
    return None if body is None else body_function(op, body, inputs=opset.function_inputs(op))
