"""Values whose sizes grow from round to round of a Loop: which sizes grow, and how large they become.

Each axis that a round changes has a symbol of its own in the body. The size after the round, as an expression of that
symbol, tells how much a round adds; times the number of rounds this gives the greatest size, for which memory is
reserved.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import onnx_ir as ir

from eqsat.codegen.control.border_sizes import ReceivedSizes
from eqsat.codegen.control.control_node import OperandSource
from eqsat.codegen.control.lowering import Lowering
from eqsat.codegen.found_sizes import Unbounded
from eqsat.codegen.program import Program, ProgramOperand, ProgramTensor
from eqsat.model.shadowing import defined_values
from eqsat.model.unused_names import unused
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.free_sizes import FreeSize
from eqsat.schema.integer_ranges import IntegerRange
from eqsat.schema.size import bounds, symbol
from eqsat.schema.size_questions import greatest, is_free, substituted, symbols
from eqsat.schema.symbol import LARGEST

StateAxis = tuple[int, int]
"""Number of a state, and an axis of it."""
Lowered = tuple[Program, dict[ProgramTensor, OperandSource]]

_PROVISIONAL = FreeSize(0, 1 << 20, 128)
"""The sizes of an axis while it is not known by how much a round changes it."""
_MOST_STEPS = 64
"""Rounds that are followed one by one, where a round does more than add."""


@dataclass
class GrowingBody:
    """The body of a Loop whose states may change their sizes.

    Attributes:
        lowering: The lowering of the Loop.
        graph: The body.
        given: The operands of its inputs.
        states: Numbers of the inputs that are states; their results follow that of the condition.
        labels: For each state the name that its sizes derive from.
        results: Numbers of the body's results.
        rounds: Upper bound of the number of rounds; None without one.
        inner: Size in the body, by varying axis.
        last: Size after a round, by varying axis, in sizes of the body.
        outer: Size that the program finds after the last round, by varying axis.
    """

    lowering: Lowering
    graph: ir.Graph
    given: Sequence[tuple[ProgramOperand, OperandSource]]
    states: Sequence[int]
    labels: Sequence[str]
    results: Sequence[int]
    rounds: int | None
    inner: dict[StateAxis, int] = field(default_factory=dict)
    last: dict[StateAxis, int] = field(default_factory=dict)
    outer: dict[StateAxis, int] = field(default_factory=dict)

    def lowered(self) -> Lowered | None:
        """The body's program and the operands of its inputs; None if there are problems."""
        problems = self.lowering.problems
        self._before = problems.copied()
        self._inputs = list(self.lowering.inputs)
        found = self._attempt()
        refused = problems.copied()
        if found is None:
            # An empty tensor that grows may be more than the operators of the body can take.
            changed = [(k, a) for k, x in enumerate(self._initial()) for a, n in enumerate(x.shape) if n == 0]
        else:
            changed = self._changed(found[0])
        if not changed:
            return found
        while changed:
            for axis in changed:
                self.inner[axis] = symbol(self._name(axis), _PROVISIONAL)
            found = self._attempt()
            if found is None:
                if refused != self._before:
                    problems.nodes = refused
                return None
            changed = self._changed(found[0])
        initial = self._initial()
        between = bounded(self.inner, {(k, a): initial[k].shape[a] for k, a in self.inner}, self.last, self.rounds)
        for (k, a), ends in between.items():
            try:
                self.outer[k, a] = self.lowering.found.size(self.labels[k], ends)
            except Unbounded as size:
                problems.add(size.reason, self.lowering.node.name)
                return None
            (name,) = (s.name for s in symbols(self.inner[k, a]))
            (outer,) = (s.range for s in symbols(self.outer[k, a]))
            self.inner[k, a] = symbol(name, outer)
        found = self._attempt()
        if found is not None:
            self._changed(found[0])
        return found

    def shape(self, state: int) -> tuple[int, ...] | None:
        """The shape of a state in the body; None if it differs between rounds."""
        if all(k != state for k, _ in self.inner):
            return None
        known = self.given[self.states[state]][0].shape
        return tuple(self.inner.get((state, a), self.lowering.sizes.size(n)) for a, n in enumerate(known))

    def after(self, axis: StateAxis, rounds: int | None) -> int | None:
        """The size after the last round; None if it is not known in advance.

        Args:
            axis: A varying axis.
            rounds: The number of rounds, None if data decides it.
        """
        change = self.lowering.sizes.from_inside(self.last[axis] - self.inner[axis])
        if rounds is None or change is None or bounds(change)[0] < 0:
            return None
        return self._initial()[axis[0]].shape[axis[1]] + change * rounds

    def _initial(self) -> list[ProgramOperand]:
        return [self.given[number][0] for number in self.states]

    def _attempt(self) -> Lowered | None:
        """The body with the sizes that are known now; problems of earlier attempts are forgotten."""
        lowering = self.lowering
        lowering.problems.nodes = {reason: list(names) for reason, names in self._before.items()}
        lowering.sizes, lowering.inputs = ReceivedSizes(), list(self._inputs)
        for size in self.inner.values():
            lowering.sizes.keep(size)
        given = list(self.given)
        for (k, a), size in self.inner.items():
            x, source = given[self.states[k]]
            shape = (*x.shape[:a], size, *x.shape[a + 1 :])
            name = x.name if isinstance(x, ProgramTensor) else ""
            given[self.states[k]] = ProgramTensor(name, to_dtype(x.dtype), shape), source
        return lowering.lowered(self.graph, given, self.results)

    def _changed(self, program: Program) -> list[StateAxis]:
        """Axes newly found to vary; records the sizes after a round of those known to vary."""
        last = [tensor for _, tensor in program.outputs][1 : 1 + len(self.states)]
        found: list[StateAxis] = []
        for k, (x, y) in enumerate(zip(self._initial(), last, strict=True)):
            if len(x.shape) != len(y.shape) or to_dtype(x.dtype) != y.dtype:
                continue
            for a, (n, m) in enumerate(zip(x.shape, y.shape, strict=True)):
                if (k, a) in self.inner:
                    self.last[k, a] = m
                elif self.lowering.sizes.size(n) != m:
                    found.append((k, a))
        return found

    def _name(self, axis: StateAxis) -> str:
        """A name for the size of an axis that no other size of the body has."""
        dims = (d for v in defined_values(self.graph) if v.shape is not None for d in v.shape)
        taken = {name for d in dims for name in re.findall(r"[A-Za-z_]\w*", str(d))} | self.lowering.sizes.ranges.keys()
        return unused(f"grown_{axis[0]}_{axis[1]}", {re.sub(r"\W", "_", name) for name in taken})


def bounded(
    inner: Mapping[StateAxis, int], initial: Mapping[StateAxis, int], last: Mapping[StateAxis, int], rounds: int | None
) -> dict[StateAxis, IntegerRange]:
    """The least and the greatest size of axes that rounds change; the greatest is ``LARGEST`` if nothing bounds it.

    Args:
        inner: Size in the body by axis, a symbol.
        initial: The sizes before the first round.
        last: The sizes after a round, in sizes of the body.
        rounds: Upper bound of the number of rounds; None without one.
    """
    names = {axis: next(symbols(size)).name for axis, size in inner.items()}
    own = set(names.values())

    def depends(size: int) -> bool:
        return is_free(size) and any(s.name in own for s in symbols(size))

    found: dict[StateAxis, IntegerRange] = {}
    for axis, size in inner.items():
        low, high = bounds(initial[axis])
        less, more = bounds(last[axis] - size)
        if not depends(last[axis] - size):
            grown = high if more <= 0 else LARGEST if rounds is None else min(high + more * rounds, LARGEST)
            found[axis] = (low if less >= 0 else 0), grown
        elif not depends(last[axis]):
            least, most = bounds(last[axis])
            found[axis] = max(min(low, least), 0), max(high, most)
    others = [axis for axis in inner if axis not in found]
    if rounds is None or rounds > _MOST_STEPS:
        return found | dict.fromkeys(others, (0, LARGEST))
    most = {axis: found[axis][1] if axis in found else greatest(initial[axis]) for axis in inner}
    for _ in range(rounds):
        sizes = {names[axis]: symbol(names[axis], FreeSize(0, n, 0)) for axis, n in most.items()}
        most |= {axis: min(max(most[axis], greatest(substituted(last[axis], sizes))), LARGEST) for axis in others}
    return found | {axis: (0, most[axis]) for axis in others}
