"""A small straight-line program of standard operators: the definition of a composite or of an eqsat function.

It is the definition from which types, MAC counts, ONNX function bodies and fallback execution follow.
"""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass, replace

from eqsat.schema.types import Attrs, OpKey


@dataclass(frozen=True, slots=True)
class BodyNode:
    """One operator of a body.

    Attributes:
        inputs: Value numbers, None for an absent optional input. Values are numbered: the body's inputs
            first, then the outputs of the nodes in order.
        outputs: Number of values that the node defines.
    """

    op: OpKey
    attrs: Attrs
    inputs: tuple[int | None, ...]
    outputs: int = 1


@dataclass(frozen=True, slots=True)
class Body:
    """Attributes:
    inputs: Number of inputs.
    nodes: In topological order; constants are ``Constant`` nodes with a ``value`` attribute.
    results: The values returned.
    """

    inputs: int
    nodes: tuple[BodyNode, ...]
    results: tuple[int, ...]

    def needed(self, results: Collection[int]) -> set[int]:
        """The values from which some values follow, those values included."""
        found = set(results)
        end = self.inputs + sum(node.outputs for node in self.nodes)
        for node in reversed(self.nodes):
            end -= node.outputs
            if not found.isdisjoint(range(end, end + node.outputs)):
                found.update(i for i in node.inputs if i is not None)
        return found

    def without(self, absent: Collection[int]) -> Body:
        """The body for a call in which some inputs are absent; they keep their numbers."""
        if not absent:
            return self
        nodes = (replace(node, inputs=tuple(None if i in absent else i for i in node.inputs)) for node in self.nodes)
        return replace(self, nodes=tuple(nodes))
