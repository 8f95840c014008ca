"""A quantized model cut in three: the part before the integers, the integers, and the part after them.

Each part is a function of the model: ``prefix`` quantizes the inputs, ``core`` reads and writes no floats, ``suffix``
dequantizes the outputs. An accelerator or a microcontroller without floating point runs the core; its caller may leave
out the prefix and pass integers (Relay's ``partition_conversions``).

If floats are needed in the middle, not all integer operators fit into one core that does not wait for itself. The cut
then leaves as much work as possible in the core: a minimum cut with three labels in the order of execution (Ishikawa,
"Exact optimization for Markov random fields with convex priors", 2003).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import networkx as nx
import onnx_ir as ir

from eqsat.model.write.written_definitions import with_definitions
from eqsat.partition.loadable import spell_for_function
from eqsat.schema.metadata import PARTS_DOMAIN, is_region, seconds_of

PARTS = ("prefix", "core", "suffix")


def partition_conversions(model: ir.Model) -> ir.Model:
    """The model with its nodes in up to three functions ``prefix``, ``core`` and ``suffix``; empty ones are left out.

    Constants of all parts stay initializers of the main graph and are passed as further inputs.
    """
    copy = model.clone()
    graph = copy.graph
    nodes = list(graph)
    functions = {f.identifier(): f for f in copy.functions.values()}
    work = [_work(node, functions) for node in nodes]
    labels = cut(nodes, work, [_is_integer(node, functions) for node in nodes])
    calls = []
    for label, part in enumerate(PARTS):
        members = [node for node, own in zip(nodes, labels, strict=True) if own == label]
        if members:
            function, call = _outlined(part, members, graph)
            spell_for_function(function)
            copy.functions[function.identifier()] = function
            calls.append(call)
    graph.extend(calls)
    graph.opset_imports[PARTS_DOMAIN] = 1
    copy.opset_imports[PARTS_DOMAIN] = 1
    return with_definitions(copy)


def cut(nodes: Sequence[ir.Node], work: Sequence[int], integer: Sequence[bool]) -> list[int]:
    """A part for each node, never before that of a node it reads, with the most work in the middle.

    Args:
        nodes: In execution order.
        work: The value of having a node in the middle, non-negative.
        integer: Whether a node may be in the middle.
    """
    network = nx.DiGraph()
    index = {node: i for i, node in enumerate(nodes)}
    source, sink = -1, -2
    network.add_nodes_from((source, sink))
    endless = 2 * (len(nodes) + sum(work)) + 1
    for i, node in enumerate(nodes):
        # A cut through the chain source, first, second, sink means prefix, core or suffix; the source's side is late.
        first, second = 2 * i, 2 * i + 1
        lost = work[i] + 1 if integer[i] else 0
        network.add_edge(source, first, capacity=lost)
        network.add_edge(first, second, capacity=0 if integer[i] else endless)
        network.add_edge(second, first, capacity=endless)
        network.add_edge(second, sink, capacity=lost)
        for value in node.inputs:
            producer = None if value is None else value.producer()
            if producer is not None and producer in index:
                # A reader of a late node is late.
                network.add_edge(2 * index[producer], first, capacity=endless)
                network.add_edge(2 * index[producer] + 1, second, capacity=endless)
    _, (late, _) = nx.minimum_cut(network, source, sink)
    return [(2 * i in late) + (2 * i + 1 in late) for i in range(len(nodes))]


def _outlined(name: str, members: Sequence[ir.Node], graph: ir.Graph) -> tuple[ir.Function, ir.Node]:
    """Moves nodes of the main graph into a function; the call is not inserted yet."""
    inside = {v for node in members for v in node.outputs}
    reads = dict.fromkeys(v for node in members for v in node.inputs if v is not None and v not in inside)
    # First the tensors that flow, then the constants.
    outer = sorted(reads, key=lambda v: v.is_initializer())
    member = set(members)
    results = [
        v
        for node in members
        for v in node.outputs
        if v.is_graph_output() or any(use.node not in member for use in v.uses())
    ]
    formal = {v: _twin(v, v.name or "") for v in outer}
    returned = [_twin(v, v.name or "") for v in results]
    for value, result in zip(results, returned, strict=True):
        for use in list(value.uses()):
            if use.node not in member:
                use.node.replace_input_with(use.idx, result)
        for position, output in enumerate(graph.outputs):
            if output is value:
                graph.outputs[position] = result
    graph.remove(members)
    for node in members:
        for k, value in enumerate(node.inputs):
            if value in formal:
                node.replace_input_with(k, formal[value])
    body = ir.Graph(
        list(formal.values()),
        results,
        nodes=list(members),
        opset_imports=dict(graph.opset_imports),
        name=name,
    )
    function = ir.Function(PARTS_DOMAIN, name, graph=body, attributes=())
    call = ir.Node(PARTS_DOMAIN, name, outer, outputs=returned, name=name)
    return function, call


def _twin(value: ir.Value, name: str) -> ir.Value:
    return ir.Value(name=name, type=value.type, shape=None if value.shape is None else value.shape.copy())


def _is_integer(node: ir.Node, functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> bool:
    """Whether a kernel, or every kernel of a region, reads and writes no floats at run time."""
    region = functions.get(node.op_identifier())
    if region is not None and is_region(region.metadata_props):
        fixed = {formal for formal, v in zip(region.inputs, node.inputs, strict=False) if v is None or _fixed(v)}
        return all(_touches_no_float(inner, fixed) for inner in region if inner.op_type != "Constant")
    return _touches_no_float(node, set())


def _touches_no_float(node: ir.Node, fixed: set[ir.Value]) -> bool:
    values = [v for v in node.inputs if v is not None and v not in fixed and not _fixed(v)]
    values += [v for v in node.outputs if v.name]
    return all(v.dtype is not None and not v.dtype.is_floating_point() for v in values)


def _fixed(value: ir.Value) -> bool:
    producer = value.producer()
    return value.is_initializer() or (producer is not None and producer.op_type == "Constant")


def _work(node: ir.Node, functions: Mapping[ir.OperatorIdentifier, ir.Function]) -> int:
    """Nanoseconds of a node by the cost model."""
    own = seconds_of(node.metadata_props)
    inside = functions.get(node.op_identifier(), ()) if own is None else ()
    return round(1e9 * ((own or 0.0) + sum(seconds_of(inner.metadata_props) or 0.0 for inner in inside)))
