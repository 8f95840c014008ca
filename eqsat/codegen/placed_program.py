"""A program whose tensors all have a place: the input of the emitter."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.codegen.buffers import Buffer, BufferPiece
from eqsat.codegen.kernel import Family, Task, View
from eqsat.codegen.program import ProgramNode, ProgramTensor


@dataclass
class Layout:
    """The places of all tensors, and the nodes to execute.

    Attributes:
        nodes: The nodes to execute, in order, including conversions and without nodes that need no work.
        families: The family that generates each node.
        places: The places of all tensors.
        buffers: All buffers, in order of creation.
        in_place: Nodes with an operand that shares storage with output 0.
    """

    nodes: list[ProgramNode] = field(default_factory=list)
    families: dict[ProgramNode, Family] = field(default_factory=dict)
    places: dict[ProgramTensor, BufferPiece] = field(default_factory=dict)
    buffers: list[Buffer] = field(default_factory=list)
    in_place: set[ProgramNode] = field(default_factory=set)

    def view(self, tensor: ProgramTensor) -> View:
        return self.places[tensor].view(tensor)

    def task(self, node: ProgramNode) -> Task:
        """The final task of a node."""
        return node.task(self.view)
