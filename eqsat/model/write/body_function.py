"""Writes a body as an ONNX function, for definitions in files and for the functions of a plan."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import onnx_ir as ir

from eqsat.schema import opset
from eqsat.schema.body import Body, BodyNode
from eqsat.schema.types import OpKey


def write_function(
    op: OpKey,
    body: Body,
    inputs: Sequence[str],
    write: Callable[[BodyNode, Sequence[ir.Value | None]], ir.Node],
    write_identity: Callable[[ir.Value, int], ir.Node],
    attributes: Callable[[], Iterable[ir.Attr]],
) -> ir.Function:
    """Writes a body as a function.

    Args:
        op: Domain and name of the function.
        body: The operators of the function.
        inputs: Names of the function's inputs.
        write: Writes a node of the body that reads the given values; called in order.
        write_identity: Writes a node that returns the given value as the result of the given number.
        attributes: Returns the attributes of the function; called after all nodes are written.
    """
    formal = [ir.Value(name=name) for name in inputs]
    values = list(formal)
    nodes: list[ir.Node] = []
    for step in body.nodes:
        nodes.append(write(step, [None if i is None else values[i] for i in step.inputs]))
        values += nodes[-1].outputs
    results: list[ir.Value] = []
    for i in body.results:
        value = values[i]
        if i < body.inputs or value in results:
            # ONNX Runtime rejects a function that returns an input, or one value twice.
            nodes.append(write_identity(value, len(results)))
            value = nodes[-1].outputs[0]
        results.append(value)
    domains = dict.fromkeys(("", *(step.op.domain for step in body.nodes)))
    imports = {domain: opset.opset_version(domain) for domain in domains}
    graph = ir.Graph(formal, results, nodes=nodes, opset_imports=imports, name=op.name)
    return ir.Function(op.domain, op.name, graph=graph, attributes=list(attributes()))
