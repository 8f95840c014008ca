"""Where bodies are: the control-flow operators of a graph and the graphs among their attributes."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import captured_values, op_key


@dataclass(frozen=True, slots=True)
class BodySite:
    """A body in its place.

    Attributes:
        node: The operator.
        attribute: Name of the attribute with the graph.
        graph: The body.
    """

    node: ir.Node
    attribute: str
    graph: ir.Graph

    @property
    def captured(self) -> tuple[ir.Value, ...]:
        """The outer values that the body reads, in order of first use."""
        return captured_values(self.graph)

    def __str__(self) -> str:
        name = self.node.name or next((v.name for v in self.node.outputs if v.name), "")
        return f"{self.attribute} of {self.node.op_type} {name!r}"


def is_control(node: ir.Node) -> bool:
    """Whether a node is an If, Loop or Scan, whose bodies are optimized."""
    return has(op_key(node), Trait.CONTROL)


def sites(graph: ir.Graph) -> Iterator[BodySite]:
    """The bodies of a graph's own operators, without nested ones."""
    for node in graph:
        if is_control(node):
            for name in sorted(node.attributes):
                attribute = node.attributes[name]
                if attribute.type == ir.AttributeType.GRAPH and not attribute.is_ref():
                    yield BodySite(node, name, attribute.as_graph())
