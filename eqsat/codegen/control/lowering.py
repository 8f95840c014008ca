"""The common part of lowering control flow: programs of bodies, operands and results of the node, its sizes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from eqsat.codegen.control.border_sizes import ReceivedSizes
from eqsat.codegen.control.control_node import CONTROL, Control, OperandSource, PlannedBody, Sink
from eqsat.codegen.found_sizes import FoundSizes
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import Program, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import depends_on_inputs, is_sizes
from eqsat.schema.attributes import attr
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.integer_ranges import IntegerRange
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType


class BodyPlanner(Protocol):
    """Makes programs of bodies."""

    def lower(
        self,
        name: str,
        graph: ir.Graph,
        given: Sequence[ProgramOperand],
        captured: Mapping[str, ProgramOperand],
        results: Sequence[int],
        sizes: FreeSizes,
        ranges: Sequence[IntegerRange | None],
    ) -> Program | None:
        """The program of a body: its inputs are the tensors among ``given``, then those among ``captured``.

        Between which numbers the elements of these inputs lie is in ``ranges``.
        """
        ...

    def place(self, program: Program, times: float) -> Layout:
        """The places of the tensors of a lowered body that is executed ``times`` times."""
        ...


@dataclass(frozen=True)
class ControlNode:
    """A node of control flow.

    Attributes:
        name: For messages.
        op: If, Loop, Scan or SequenceMap.
        attrs: The bodies among them.
        operands: Its own operands, None where absent.
        captured: The outer values that its bodies read, by name; None for those that were refused.
        types: Types of its results as far as they are known.
        used: Which results have readers.
        names: Names of its results.
    """

    name: str
    op: OpKey
    attrs: Attrs
    operands: Sequence[ProgramOperand | None]
    captured: Mapping[str, ProgramOperand | None]
    types: Sequence[TensorType | None]
    used: Sequence[bool]
    names: Sequence[str]


class Lowering(ABC):
    """Lowers one node.

    Attributes:
        nodes: The nodes that replace it.
        results: Its results; None for those that were refused.
        inputs: The operands of the node that calls the bodies.
        sizes: The sizes that the bodies receive.
        round: Range of the number of the round.
    """

    round: IntegerRange | None = None

    def __init__(self, node: ControlNode, bodies: BodyPlanner, problems: Problems, found: FoundSizes) -> None:
        self.node = node
        self.captured = {name: x for name, x in node.captured.items() if x is not None}
        self.bodies = bodies
        self.problems = problems
        self.found = found
        self.nodes: list[ProgramNode] = []
        self.results: list[ProgramOperand | None] = [None] * len(node.used)
        self.inputs: list[ProgramOperand | None] = []
        self.sizes = ReceivedSizes()

    @abstractmethod
    def lower(self) -> None:
        """Makes the nodes and the results."""

    def operand(self, operand: ProgramOperand) -> int:
        """Number of an operand of the node; one that several bodies read is an operand once."""
        for k, known in enumerate(self.inputs):
            if known is operand:
                return k
        self.inputs.append(operand)
        return len(self.inputs) - 1

    def graph(self, name: str) -> ir.Graph:
        found = attr(self.node.attrs, name)
        assert isinstance(found, GraphAttr)
        return found.graph

    def lowered(
        self, graph: ir.Graph, given: Sequence[tuple[ProgramOperand, OperandSource]], results: Sequence[int]
    ) -> tuple[Program, dict[ProgramTensor, OperandSource]] | None:
        """A body's program, and what its inputs are."""
        captured = {name: self.captured[name] for name in _captured(self.node.attrs, graph)}
        inside = {name: self.sizes.operand(x) for name, x in captured.items()}
        own = [self.sizes.operand(x) for x, _ in given]
        kinds = [(x, source.kind) for x, source in given] + [(x, "operand") for x in captured.values()]
        ranges = [self._between(x, kind) for x, kind in kinds if depends_on_inputs(x)]
        program = self.bodies.lower(self.node.name, graph, own, inside, results, self.sizes.ranges, ranges)
        if program is None:
            return None
        sources = [source for x, source in given if depends_on_inputs(x)]
        # A tensor of which only the sizes are used is not read.
        sources += [
            OperandSource("operand", self.operand(x)) if isinstance(x, ProgramTensor) else OperandSource("round")
            for x in captured.values()
            if depends_on_inputs(x)
        ]
        return program, dict(zip(program.inputs, sources, strict=True))

    def _between(self, operand: ProgramOperand, kind: str) -> IntegerRange | None:
        if is_sizes(operand):
            return None
        return self.round if kind == "round" else self.found.ranges.of(operand)

    def body(
        self,
        program: Program,
        sources: Mapping[ProgramTensor, OperandSource],
        sinks: Sequence[Sink],
        times: float,
        reported: Sequence[int] = (),
    ) -> PlannedBody:
        """A body without the inputs that it does not read."""
        read = {t for node in program.nodes for t in node.reads()} | {t for _, t in program.outputs}
        program.inputs = [t for t in program.inputs if t in read]
        layout = self.bodies.place(program, times)
        return PlannedBody(program, layout, tuple(sources[t] for t in program.inputs), tuple(sinks), tuple(reported))

    def result(self, number: int, dtype: ir.DataType, shape: Sequence[int]) -> ProgramTensor:
        name = self.node.names[number] or f"{self.node.name}_{number}"
        result = ProgramTensor(name, dtype, tuple(shape))
        self.results[number] = result
        return result

    def finish(self, control: Control, outputs: list[ProgramTensor | None]) -> None:
        dtype = next((t.dtype for t in outputs if t is not None), ir.DataType.FLOAT)
        self.nodes.append(
            ProgramNode(self.node.name, self.node.op, {CONTROL: control}, list(self.inputs), outputs, dtype)
        )

    def written(self, operand: ProgramOperand) -> ProgramOperand:
        """An array of sizes as a tensor."""
        if isinstance(operand, np.ndarray) and is_sizes(operand):
            return self.found.written(f"{self.node.name}_sizes_{len(self.inputs)}", operand)
        return operand

    def outside(self, value: ProgramTensor) -> tuple[int, ...] | None:
        """The outer shape of a result of a body; None if the body finds sizes."""
        shape = [self.sizes.from_inside(n) for n in value.shape]
        return None if None in shape else tuple(n for n in shape if n is not None)


def _captured(attrs: Attrs, graph: ir.Graph) -> tuple[str, ...]:
    """Names of the outer values that one of the bodies reads."""
    return next(v.captured for _, v in attrs if isinstance(v, GraphAttr) and v.graph is graph)
