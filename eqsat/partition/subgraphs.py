"""Bodies of If, Loop and Scan in a rewritten program: connects the values that they read from outside to their new
names.

A body names the outer values that it captures. After rewriting, another node may compute such a value under another
name, and a name that the body defines itself may have been given to an outer value. ONNX allows neither dangling names
nor shadowing.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import replace

import onnx_ir as ir

from eqsat.errors import OptimizationError
from eqsat.model.shadowing import defined_values, rename_defined
from eqsat.partition.plan import Plan, PlanNode
from eqsat.schema.types import Attrs, AttrValue, GraphAttr


def captured_names(attrs: Attrs) -> tuple[str, ...]:
    """Outer values that the subgraphs among the attributes read, each once, in order of first use."""
    graphs = (value for _, value in attrs if isinstance(value, GraphAttr))
    return tuple(dict.fromkeys(name for graph in graphs for name in graph.captured))


def operands(node: PlanNode) -> tuple[int | None, ...]:
    """A node's inputs without captured values, which come last."""
    captured = len(captured_names(node.attrs))
    return node.inputs[: len(node.inputs) - captured] if captured else node.inputs


def captured_ids(plan: Plan, node: PlanNode) -> dict[str, int]:
    """For each captured name in the node's subgraphs, the id of the value that now holds it.

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
    ids = (*operands(node), *captured_ids(plan, node).values())
    return tuple(dict.fromkeys(v for v in ids if v is not None))


def bind_graph(graph: ir.Graph, captured: Mapping[str, ir.Value], outer: AbstractSet[str]) -> ir.Graph:
    """A copy of a body that reads its captured values from elsewhere.

    Args:
        graph: The loaded body; it is not changed.
        captured: Name of a captured value in the body -> the value to read instead.
        outer: Names of the enclosing scopes, which the copy must not define.
    """
    copy = graph.clone(allow_outer_scope_values=True)
    known = set(defined_values(copy))
    for node in copy.all_nodes():
        for i, value in enumerate(node.inputs):
            if value is not None and value not in known:
                node.replace_input_with(i, captured[value.name or ""])
    rename_defined(copy, outer)
    return copy
