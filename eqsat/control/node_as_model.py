"""One operator of control flow as a model of its own, and other programs for it."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.egraph.alternatives import Alternative, can_be_written
from eqsat.errors import EqsatError
from eqsat.model.load import load
from eqsat.partition.subgraphs import bind_graph
from eqsat.schema.attributes import captured_values


def piece_of(node: ir.Node, model: ir.Model) -> ir.Model:
    """A model with this operator alone: its inputs have the names of the values that it reads, constants are constants.

    Args:
        node: Of the model's main graph.
        model: As loaded; not changed.

    Returns:
        A model that is not loaded; its outputs are those outputs of the operator that something reads.
    """
    bodies = {a.name: a.as_graph() for a in node.attributes.values() if a.type == ir.AttributeType.GRAPH}
    read = [v for v in node.inputs if v is not None]
    read += [v for body in bodies.values() for v in captured_values(body)]
    copies: dict[ir.Value, ir.Value] = {}
    for value in dict.fromkeys(read):
        shape = None if value.shape is None else value.shape.copy()
        copies[value] = ir.Value(name=value.name, type=value.type, shape=shape, const_value=value.const_value)
    by_name = {v.name or "": copy for v, copy in copies.items()}
    attributes = [
        ir.AttrGraph(a.name, bind_graph(bodies[a.name], by_name, frozenset())) if a.name in bodies else a
        for a in node.attributes.values()
    ]
    made = ir.Node(
        node.domain, node.op_type, [None if v is None else copies[v] for v in node.inputs], attributes,
        num_outputs=len(node.outputs), name=node.name,
    )  # fmt: skip
    outputs: list[ir.Value] = []
    for value, old in zip(made.outputs, node.outputs, strict=True):
        value.name, value.type = old.name, old.type
        value.shape = None if old.shape is None else old.shape.copy()
        if old.uses() or old.is_graph_output():
            outputs.append(value)
    constants = {v for v in copies if v.is_initializer() and v.const_value is not None}
    graph = ir.Graph(
        [copy for v, copy in copies.items() if v not in constants],
        outputs,
        nodes=[made],
        initializers=[copies[v] for v in copies if v in constants],
        opset_imports=dict(model.graph.opset_imports),
        name=f"{node.op_type} {node.name or outputs[0].name if outputs else node.name}",
    )
    functions = [function.clone() for function in model.functions.values()]
    return ir.Model(graph, ir_version=model.ir_version, functions=functions)


def alternative(name: str, piece: ir.Model, numerics: str = "exact") -> Alternative | None:
    """A rewritten piece as an alternative, None if it cannot be one.

    Args:
        name: Name of the pass that rewrote it.
        piece: Not loaded; its inputs and outputs have the names of the model's values.
        numerics: How far values may change.
    """
    try:
        made = load(piece)
    except EqsatError:
        return None
    if not can_be_written(made):
        return None
    results = tuple(v.name or "" for v in made.graph.outputs)
    return Alternative(name, made, results, "real" if numerics == "real" else "exact")
