"""Bodies of If, Loop and Scan in a rewritten program: connects the values that they read from outside to their new
names.

A body names the outer values that it captures. After rewriting, another node may compute such a value under another
name, and a name that the body defines itself may have been given to an outer value. ONNX allows neither dangling names
nor shadowing.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.attributes import subgraphs
from eqsat.schema.types import Attrs, AttrValue, GraphAttr


def captured_names(attrs: Attrs) -> tuple[str, ...]:
    """Outer values that the subgraphs among the attributes read, each once, in order of first use."""
    graphs = (value for _, value in attrs if isinstance(value, GraphAttr))
    return tuple(dict.fromkeys(name for graph in graphs for name in graph.captured))


def operands(node: PlanNode) -> tuple[int | None, ...]:
    """A node's inputs without those that stand for captured values, which come last."""
    captured = len(captured_names(node.attrs))
    return node.inputs[: len(node.inputs) - captured] if captured else node.inputs


def captured_values(plan: Plan, node: PlanNode) -> dict[str, int]:
    """Name in the node's subgraphs -> value id that now holds the captured value.

    Raises:
        OptimizationError: The plan does not contain a captured value.
    """
    found = {}
    for name in captured_names(node.attrs):
        if name not in plan.subgraph_names:
            raise OptimizationError(
                "every value that a subgraph captures must be part of the program",
                place=f"a subgraph of {node.op}",
                actual=f"{name!r}",
            )
        found[name] = plan.subgraph_names[name]
    return found


def with_bodies(plan: Plan, bodies: Mapping[ir.Graph, ir.Graph]) -> Plan:
    """The plan with other bodies of the control flow that the host executes.

    Args:
        plan: The program.
        bodies: By the body in the plan, another one that captures no further values.
    """

    def swapped(value: AttrValue) -> AttrValue:
        found = bodies.get(value.graph) if isinstance(value, GraphAttr) else None
        return value if found is None or not isinstance(value, GraphAttr) else replace(value, graph=found)

    nodes = tuple(
        replace(node, attrs=tuple((name, swapped(value)) for name, value in node.attrs)) if node.target == 0 else node
        for node in plan.nodes
    )
    return replace(plan, nodes=nodes) if bodies else plan


def reads(plan: Plan, node: PlanNode) -> tuple[int, ...]:
    """Distinct values that a node reads, captured ones included, in order."""
    ids = (*operands(node), *captured_values(plan, node).values())
    return tuple(dict.fromkeys(v for v in ids if v is not None))


def defined_values(graph: ir.Graph) -> Iterator[ir.Value]:
    """Values that a graph and the graphs inside it define."""
    yield from graph.inputs
    yield from graph.initializers.values()
    for node in graph:
        yield from node.outputs
        for body in subgraphs(node):
            yield from defined_values(body)


def defined_names(graph: ir.Graph) -> tuple[str, ...]:
    """Names that a graph and the graphs inside it define, each once."""
    return tuple(dict.fromkeys(v.name for v in defined_values(graph) if v.name))


def bind_graph(graph: ir.Graph, captured: Mapping[str, ir.Value], outer: AbstractSet[str]) -> ir.Graph:
    """A copy of a body that reads its captured values from elsewhere.

    Args:
        graph: The body as loaded; it is not changed.
        captured: Name of a captured value in the body -> the value to read instead.
        outer: Names of the enclosing scopes, which the copy must not define.
    """
    copy = graph.clone(allow_outer_scope_values=True)
    known = set(defined_values(copy))
    for node in _all_nodes(copy):
        for i, value in enumerate(node.inputs):
            if value is not None and value not in known:
                node.replace_input_with(i, captured[value.name or ""])
    rename_defined(copy, outer)
    return copy


def rename_defined(graph: ir.Graph, outer: AbstractSet[str]) -> None:
    """Renames, in place, what a body defines under a name of an enclosing scope."""
    own = list(dict.fromkeys(defined_values(graph)))
    inner = {v.name for v in own if v.name}
    for value in own:
        if value.name and value.name in outer:
            k = 1
            while (name := f"{value.name}_{k}") in outer or name in inner:
                k += 1
            value.name = name
            inner.add(name)


def _all_nodes(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        yield node
        for body in subgraphs(node):
            yield from _all_nodes(body)


def unshadow(graph: ir.Graph) -> None:
    """Renames values in the bodies of control flow that clash with names of inlined functions."""
    outer = {v.name for v in (*graph.inputs, *graph.initializers.values()) if v.name}
    outer.update(v.name for node in graph for v in node.outputs if v.name)
    for node in graph:
        for body in subgraphs(node):
            rename_defined(body, outer)
