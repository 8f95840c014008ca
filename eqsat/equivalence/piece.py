"""The pieces of both models between cuts, as one model for one saturation.

At a cut, tensors that may be equal become one input. A piece is the program from such inputs to one tensor. If two
pieces compute the same from the inputs of the cuts, then their tensors are equal, provided that the tensors of each cut
are equal. So all pieces are rewritten at once and none depends on the size of the models.

Longer pieces pass some cuts. The pieces of a group pass the same ones, because a rule joins two programs only if both
start from the same tensors: a fused operator of one model may span cuts of the other.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import onnx_ir as ir

from eqsat.equivalence.candidates import ClassGroup
from eqsat.equivalence.tensors import ModelNode, Tensors
from eqsat.model.unused_names import unused

Leaves = dict[int, set[int]]
"""The tensors of each cut, by the number of its group."""
SHORT = -1
"""The scope of pieces that pass no cut, whose operators all groups share."""
MOST_PASSED = 24
"""Cuts that are passed in one step so that pieces start from the same tensors."""


@dataclass(frozen=True)
class Goal:
    """A tensor to be joined with the others of its group.

    Attributes:
        tensor: Its number.
        group: Number of its group.
        value: Its value in the model of pieces.
        leaves: The tensors that its piece reads.
    """

    tensor: int
    group: int
    value: ir.Value
    leaves: Leaves


@dataclass
class PieceModel:
    """A model of pieces.

    Attributes:
        model: All pieces as one model.
        goals: The tensors at the ends of pieces.
        cuts: The input that represents the tensors of each group.
    """

    model: ir.Model
    goals: list[Goal] = field(default_factory=list)
    cuts: Mapping[int, ir.Value] = field(default_factory=dict)


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
        self._goals: list[Goal] = []
        self._passed: dict[int, set[int]] = {SHORT: set()}
        self._made: dict[tuple[int, int], ir.Value] = {}
        self._leaves: dict[tuple[int, int], Leaves] = {}
        self._names: set[str] = set()

    @property
    def size(self) -> int:
        """Operators of all pieces so far."""
        return len(self._nodes)

    def add(self, number: int, group: ClassGroup, depth: int) -> None:
        """Adds the pieces of a group.

        Args:
            number: Of the group.
            group: Its tensors.
            depth: In how many steps its pieces were made longer.
        """
        seen: set[int] = set()
        scope = self._scope(number, group, depth)
        for k in group:
            # Tensors that are joined already need one piece.
            first = self.tensors.joined.find(k)
            if first not in seen:
                seen.add(first)
                value, leaves = self._define(k, scope)
                self._goals.append(Goal(k, number, value, leaves))

    def pieces(self) -> PieceModel:
        """All pieces, once."""
        outputs = list(dict.fromkeys(goal.value for goal in self._goals))
        graph = ir.Graph(
            list(self._inputs.values()),
            outputs,
            nodes=self._nodes,
            initializers=list(self._initial.values()),
            opset_imports={**self.tensors.models[1].opset_imports, **self.tensors.models[0].opset_imports},
            name="pieces",
        )
        model = ir.Model(graph, ir_version=self.tensors.models[0].ir_version)
        return PieceModel(
            model, self._goals, {number: v for (kind, number), v in self._inputs.items() if kind == "cut"}
        )

    # ---- cuts that pieces pass ---------------------------------------------------------------------

    def _scope(self, number: int, group: ClassGroup, depth: int) -> int:
        """The number under which the cuts are known that the pieces of a group pass."""
        passed: set[int] = set()
        for _ in range(depth):
            reads = self._reads(group, passed)
            if not self._align(group, passed, reads):
                passed |= reads[0] | reads[1]
                self._align(group, passed, self._reads(group, passed))
        if not passed:
            return SHORT
        self._passed[number] = passed
        return number

    def _align(self, group: ClassGroup, passed: set[int], reads: tuple[set[int], set[int]]) -> bool:
        """Passes the last cut that only one model's pieces read, as long as there is one; whether there was."""
        first = len(passed)
        for _ in range(MOST_PASSED):
            apart = reads[0] ^ reads[1]
            if not apart:
                break
            passed.add(max(apart, key=lambda n: self._last[n]))
            reads = self._reads(group, passed)
        return len(passed) > first

    @cached_property
    def _last(self) -> dict[int, float]:
        """By group how late it is computed: the place of its last tensor in its model."""
        sizes = [sum(side == model for side in self.tensors.side) for model in (0, 1)]
        found: dict[int, float] = {}
        for k, number in self.cuts.items():
            side = self.tensors.side[k]
            place = (k - side * sizes[0]) / max(sizes[side], 1)
            found[number] = max(found.get(number, 0.0), place)
        return found

    def _reads(self, group: ClassGroup, passed: set[int]) -> tuple[set[int], set[int]]:
        """By model the cuts that the pieces of a group read and that can be passed."""
        found: tuple[set[int], set[int]] = (set(), set())
        for side in (0, 1):
            waiting = [k for k in group if self.tensors.side[k] == side]
            seen: set[int] = set()
            while waiting:
                maker = self.tensors.maker(waiting.pop())
                for k in () if maker is None or maker.is_opaque else maker.operands:
                    if k is None or k in seen or k in self.tensors.initial or self.tensors.fixed[k]:
                        continue
                    seen.add(k)
                    if self._ends(k, passed):
                        if k in self.cuts and not self._is_open(k):
                            found[side].add(self.cuts[k])
                    else:
                        waiting.append(k)
        return found

    def _is_open(self, k: int) -> bool:
        """Whether nothing is known of how a tensor is computed."""
        maker = self.tensors.maker(k)
        return maker is None or maker.is_opaque

    def _ends(self, k: int, passed: set[int]) -> bool:
        """Whether a tensor that follows from inputs is an input of the pieces that read it."""
        return self._is_open(k) or self.cuts.get(k, SHORT) not in {SHORT, *passed}

    # ---- operators of pieces -----------------------------------------------------------------------

    def _read(self, k: int, scope: int) -> tuple[ir.Value, Leaves]:
        """A tensor as operand of a piece."""
        tensors = self.tensors
        if k in tensors.initial:
            return self._constant(k), {}
        if tensors.fixed[k] and not self._is_open(k):
            return self._define(k, SHORT)
        if not self._ends(k, self._passed[scope]):
            return self._define(k, scope)
        group = self.cuts.get(k)
        if group is not None:
            return self._input("cut", group, k), {group: {k}}
        return self._input("tensor", tensors.joined.find(k), k), {}

    def _define(self, k: int, scope: int) -> tuple[ir.Value, Leaves]:
        """The result of a piece that ends with a tensor."""
        maker = self.tensors.maker(k)
        if maker is None or maker.is_opaque:
            return self._read(k, SHORT)
        if (k, scope) not in self._made:
            self._expand(maker, scope)
        return self._made[k, scope], self._leaves[k, scope]

    def _expand(self, last: ModelNode, scope: int) -> None:
        """Adds an operation, and those before it down to the cuts, without recursion: chains can be long."""
        waiting = [(last, scope)]
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

    def _missing(self, k: int, scope: int) -> tuple[ModelNode, int] | None:
        """The operations that must exist before an operand can be read."""
        tensors, maker = self.tensors, self.tensors.maker(k)
        if maker is None or maker.is_opaque or k in tensors.initial:
            return None
        if tensors.fixed[k]:
            scope = SHORT
        elif self._ends(k, self._passed[scope]):
            return None
        return None if (k, scope) in self._made else (maker, scope)

    def _add(self, operation: ModelNode, scope: int) -> None:
        leaves: Leaves = {}
        operands: list[ir.Value | None] = []
        for k in operation.operands:
            if k is None:
                operands.append(None)
                continue
            value, below = self._read(k, scope)
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
            self._made[k, scope] = value
            self._leaves[k, scope] = leaves

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
