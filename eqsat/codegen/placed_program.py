"""A program whose tensors all have a place: the input of the emitter."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.codegen.buffers import Buffer, Place
from eqsat.codegen.kernel import Family, Task, View
from eqsat.codegen.program import Node, Tensor


@dataclass
class Layout:
    """The places of all tensors, and the nodes to execute.

    Attributes:
        nodes: The nodes to execute, in order, including conversions and without nodes that need no work.
        families: The family that generates each node.
        places: Of all tensors.
        buffers: All of them, in order of creation.
        in_place: Nodes with an operand that shares storage with output 0.
    """

    nodes: list[Node] = field(default_factory=list)
    families: dict[Node, Family] = field(default_factory=dict)
    places: dict[Tensor, Place] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    in_place: set[Node] = field(default_factory=set)

    def view(self, tensor: Tensor) -> View:
        return self.places[tensor].view(tensor)

    def task(self, node: Node) -> Task:
        """The final task of a node."""
        return node.task(self.view)
