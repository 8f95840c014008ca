"""The pieces of both models between cuts, as one model: what one saturation works on.

At a cut, tensors that may be equal become one input. A piece is the program from such inputs to one tensor. If two
pieces compute the same from the inputs of the cuts, then their tensors are equal, provided that the tensors are that
each cut stands for. So all pieces are rewritten at once and none depends on the size of the models.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.equivalence.candidates import Group
from eqsat.equivalence.tensors import Operation, Tensors
from eqsat.model.names import unused

Leaves = dict[int, set[int]]
"""By cut (the number of its group) the tensors that it stands for."""


@dataclass(frozen=True)
class Goal:
    """A tensor to be joined with the others of its group.

    Attributes:
        tensor: Its number.
        group: That of its group.
        value: In the model of pieces.
        leaves: What its piece reads.
    """

    tensor: int
    group: int
    value: ir.Value
    leaves: Leaves


@dataclass
class Pieces:
    """A model of pieces.

    Attributes:
        model: All of them.
        goals: The tensors that they end with.
    """

    model: ir.Model
    goals: list[Goal] = field(default_factory=list)


class Cutter:
    """Cuts pieces out of two models.

    Args:
        tensors: Of both models.
        cuts: By tensor the number of its group.
    """

    def __init__(self, tensors: Tensors, cuts: Mapping[int, int]) -> None:
        self.tensors = tensors
        self.cuts = cuts
        self._inputs: dict[tuple[str, int], ir.Value] = {}
        self._initial: dict[int, ir.Value] = {}
        self._nodes: list[ir.Node] = []
        self._made: dict[tuple[int, int], ir.Value] = {}
        self._leaves: dict[tuple[int, int], Leaves] = {}
        self._names: set[str] = set()

    def cut(self, groups: Mapping[int, Group], depth: Mapping[int, int]) -> Pieces:
        """The pieces of some groups.

        Args:
            groups: The tensors by number of the group.
            depth: How many cuts on each way each group's pieces pass.
        """
        goals: list[Goal] = []
        for number, group in groups.items():
            seen: set[int] = set()
            for k in group:
                # Tensors that are joined already need one piece.
                first = self.tensors.joined.find(k)
                if first not in seen:
                    seen.add(first)
                    value, leaves = self._define(k, depth.get(number, 0))
                    goals.append(Goal(k, number, value, leaves))
        outputs = list(dict.fromkeys(goal.value for goal in goals))
        graph = ir.Graph(
            list(self._inputs.values()),
            outputs,
            nodes=self._nodes,
            initializers=list(self._initial.values()),
            opset_imports={**self.tensors.models[1].opset_imports, **self.tensors.models[0].opset_imports},
            name="pieces",
        )
        model = ir.Model(graph, ir_version=self.tensors.models[0].ir_version)
        return Pieces(model, goals)

    def _read(self, k: int, depth: int) -> tuple[ir.Value, Leaves]:
        """A tensor as operand of a piece that may pass so many cuts."""
        tensors = self.tensors
        maker = tensors.maker(k)
        if k in tensors.initial:
            return self._constant(k), {}
        if tensors.fixed[k] and maker is not None and not maker.is_opaque:
            return self._define(k, 0)
        group = self.cuts.get(k)
        if group is not None and (depth == 0 or maker is None or maker.is_opaque):
            return self._input("cut", group, k), {group: {k}}
        if maker is None or maker.is_opaque:
            first = tensors.joined.find(k)
            return self._input("tensor", first, k), {}
        return self._define(k, depth - (group is not None))

    def _define(self, k: int, depth: int) -> tuple[ir.Value, Leaves]:
        """The result of a piece that ends with a tensor."""
        key = (k, depth)
        maker = self.tensors.maker(k)
        if maker is None or maker.is_opaque:
            return self._read(k, 0)
        if key not in self._made:
            self._expand(maker, depth)
        return self._made[key], self._leaves[key]

    def _expand(self, last: Operation, depth: int) -> None:
        """Adds an operation, and those before it down to the cuts, without recursion: chains can be long."""
        waiting = [(last, depth)]
        while waiting:
            operation, here = waiting[-1]
            if (operation.results[0], here) in self._made:
                waiting.pop()
                continue
            missing = [m for k in operation.operands if k is not None and (m := self._missing(k, here)) is not None]
            if missing:
                waiting += missing
                continue
            waiting.pop()
            self._add(operation, here)

    def _missing(self, k: int, depth: int) -> tuple[Operation, int] | None:
        """What must be there before an operand can be read."""
        tensors, maker = self.tensors, self.tensors.maker(k)
        if maker is None or maker.is_opaque or k in tensors.initial:
            return None
        if tensors.fixed[k]:
            depth = 0
        elif k in self.cuts:
            if depth == 0:
                return None
            depth -= 1
        return None if (k, depth) in self._made else (maker, depth)

    def _add(self, operation: Operation, depth: int) -> None:
        leaves: Leaves = {}
        operands: list[ir.Value | None] = []
        for k in operation.operands:
            if k is None:
                operands.append(None)
                continue
            value, below = self._read(k, depth)
            operands.append(value)
            for group, members in below.items():
                leaves.setdefault(group, set()).update(members)
        node = ir.Node(
            operation.node.domain,
            operation.node.op_type,
            operands,
            list(operation.node.attributes.values()),
            overload=operation.node.overload,
            num_outputs=len(operation.results),
        )
        self._nodes.append(node)
        for k, value in zip(operation.results, node.outputs, strict=True):
            self._copy(value, k)
            self._made[k, depth] = value
            self._leaves[k, depth] = leaves

    def _constant(self, k: int) -> ir.Value:
        first = self.tensors.joined.find(k)
        if first not in self._initial:
            value = ir.Value(const_value=self.tensors.values[first].const_value)
            self._initial[first] = self._copy(value, first)
        return self._initial[first]

    def _input(self, kind: str, number: int, k: int) -> ir.Value:
        if (kind, number) not in self._inputs:
            self._inputs[kind, number] = self._copy(ir.Value(), k)
        return self._inputs[kind, number]

    def _copy(self, value: ir.Value, k: int) -> ir.Value:
        """Gives a value the name and the type of a tensor."""
        given = self.tensors.values[k]
        value.name = unused(given.name or "t", self._names)
        self._names.add(value.name)
        value.type, value.shape = given.type, given.shape
        return value
