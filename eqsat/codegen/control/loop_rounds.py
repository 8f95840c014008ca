"""Lowers Loop and Scan: the values that rounds read, those that they hand on, and the rows that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np
import onnx_ir as ir

from eqsat.codegen.control.control_node import (
    UNKNOWN_ROUNDS,
    ControlLoop,
    LoopState,
    MeasuredSize,
    OperandSource,
    PlannedBody,
    Sink,
)
from eqsat.codegen.control.growing_values import GrowingBody
from eqsat.codegen.control.lowering import BodyPlanner, ControlNode, Lowering
from eqsat.codegen.found_sizes import FoundSizes, Unbounded
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import IDENTITY, Program, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import elements
from eqsat.codegen.shapes import operand_type
from eqsat.schema.attributes import attr
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size import bounds
from eqsat.schema.size_choices import largest, smallest
from eqsat.schema.size_questions import greatest, symbols, typical
from eqsat.schema.symbol import LARGEST
from eqsat.schema.types import OpKey

_TRANSPOSE = OpKey("", "Transpose")


@dataclass(slots=True)
class _Carried:
    """The values that a ``Loop`` carries from round to round.

    Attributes:
        given: The operands of the body's inputs, and where they come from.
        places: Which of them are states.
        states: Numbers of the node's results that are states.
        first: Their values before the first round.
    """

    given: list[tuple[ProgramOperand, OperandSource]]
    places: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    first: list[ProgramOperand] = field(default_factory=list)


@dataclass(frozen=True, slots=True)
class _Ending:
    """When a ``Loop`` ends.

    Attributes:
        rounds: The number of rounds, None if data decides it.
        most: Upper bound of the number of rounds, None without one.
        tested: Whether the condition that the body computes is read.
    """

    rounds: int | None
    most: int | None
    tested: bool


class LoopLowering(Lowering):
    """Lowers a ``Loop`` or a ``Scan``."""

    counted: int | None = None
    """The number of rounds, if data decides how many rows there are."""
    growing: GrowingBody | None = None
    """The states whose sizes rounds change."""

    def __init__(self, node: ControlNode, bodies: BodyPlanner, problems: Problems, found: FoundSizes) -> None:
        super().__init__(node, bodies, problems, found)
        self.measured: list[tuple[int, MeasuredSize]] = []
        self.found_last: list[tuple[str, int]] = []

    def lower(self) -> None:
        if self.node.op.name == "Loop":
            self._loop()
        else:
            self._scan()

    # ---- Loop ------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """Lowers a ``Loop``: rounds run while the condition is true, up to the limit."""
        limit, condition = self.node.operands[:2]
        rounds = _stated_rounds(limit, condition)
        most = self._most(limit) if rounds is None else greatest(rounds)
        if most is not None:
            self.round = (0, max(most - 1, 0))
        graph = self.graph("body")
        carried = self._carried(graph)
        rows = [k for k in range(len(self.node.operands) - 2, len(self.node.used)) if self.node.used[k]]
        results = [0, *(1 + k for k in carried.states), *(1 + k for k in rows)]
        labels = [self.node.names[k] or self.node.name for k in carried.states]
        self.growing = GrowingBody(self, graph, carried.given, carried.places, labels, results, most)
        found = self.growing.lowered()
        if found is None:
            return
        program, sources = found
        ending = self._ending(program, rounds, counts=bool(rows) and not self.growing.inner)
        outputs = self._loop_results(program, carried.states, carried.first, rows, ending.rounds, ending.most)
        if outputs is None:
            return
        sinks = [Sink("condition")] if ending.tested else []
        sinks += [Sink("state", k) for k in range(len(carried.states))]
        sinks += [Sink("row", len(carried.states) + k) for k in range(len(rows))]
        times = UNKNOWN_ROUNDS if ending.rounds is None else typical(ending.rounds)
        body = self.body(program, sources, sinks, times, [size for size, _ in self.measured])
        self.finish(self._as_loop(body, carried, ending, len(outputs)), list(outputs))
        self._read_rounds(outputs[len(carried.states) :])

    def _carried(self, graph: ir.Graph) -> _Carried:
        """The inputs of the body. A value that the body returns unchanged is not a state, but read from outside."""
        # Inside a round the condition is true.
        found = _Carried(
            given=[
                (ProgramTensor("round", ir.DataType.INT64, ()), OperandSource("round")),
                (np.array(True), OperandSource("round")),
            ]
        )
        for k, x in enumerate(self.node.operands[2:]):
            assert x is not None
            if _handed_on(graph.outputs[1 + k]) is graph.inputs[2 + k]:
                found.given.append(
                    (
                        x,
                        OperandSource("operand", self.operand(x))
                        if isinstance(x, ProgramTensor)
                        else OperandSource("round"),
                    )
                )
                self.results[k] = x
                continue
            x = self.written(x)
            found.places.append(len(found.given))
            found.given.append((_like(graph.inputs[2 + k].name or "", x), OperandSource("state", len(found.states))))
            found.states.append(k)
            found.first.append(x)
        return found

    def _ending(self, program: Program, rounds: int | None, *, counts: bool) -> _Ending:
        """When the loop ends. A condition that never changes is removed from the body.

        Args:
            program: The body's program; its first result is the condition.
            rounds: The limit that the operands give, None if data decides it.
            counts: Whether a limit that data decides may become a size.
        """
        limit, condition = self.node.operands[:2]
        computed = program.outputs[0][1]
        again = _constant(program, computed)
        if again is False and rounds is not None:
            rounds = smallest(rounds, 1)
        tested = again is None or (not again and rounds is None)
        if tested:
            self._check_condition(computed)
        else:
            del program.outputs[0]
            program.remove_dead()
        holds = _is_true(condition)
        certain = holds and not tested
        if certain and counts and isinstance(limit, ProgramTensor):
            rounds = self._counted(limit)
        known = rounds if rounds == 0 or certain else None
        if known is None and limit is None and again and holds:
            self.problems.add("a Loop that never ends", self.node.name)
        return _Ending(known, rounds, tested)

    def _as_loop(self, body: PlannedBody, carried: _Carried, ending: _Ending, outputs: int) -> ControlLoop:
        """The node's control flow.

        Args:
            body: The program of a round.
            carried, ending: See there.
            outputs: Number of results before the number of rounds and the sizes after the last round.
        """
        assert self.growing is not None
        limit, condition = self.node.operands[:2]
        is_counted = ending.rounds is not None
        states = tuple(LoopState(self.operand(x), k, self.growing.shape(k)) for k, x in enumerate(carried.first))
        return ControlLoop(
            (body,),
            states,
            self.sizes.size(ending.rounds) if ending.rounds is not None else None,
            None if limit is None or is_counted else self.operand(self.written(limit)),
            None if is_counted or condition is None or _is_true(condition) else self.operand(condition),
            tuple(self.sizes.arguments()),
            None if self.counted is None else outputs,
            tuple(measured for _, measured in self.measured),
            None if not self.found_last else outputs + (self.counted is not None),
            tuple(variable for variable, _ in self.found_last),
        )

    def _most(self, limit: ProgramOperand | None) -> int | None:
        """The greatest value of a limit that data decides, None if nothing bounds it."""
        between = self.found.ranges.of(limit) if isinstance(limit, ProgramTensor) else None
        return None if between is None or between[1] >= LARGEST else max(between[1], 0)

    def _counted(self, limit: ProgramTensor) -> int | None:
        """A limit that data decides, as a size; None if nothing bounds it."""
        try:
            return largest(elements(self.found.as_sizes(limit, self.node.name, signed=True))[0], 0)
        except Unbounded:
            return None

    def _check_condition(self, condition: ProgramTensor) -> None:
        if condition.dtype != ir.DataType.BOOL or math.prod(condition.shape) != 1:
            self.problems.add(f"a condition of Loop that is {operand_type(condition)} and not one bool", self.node.name)

    def _loop_results(
        self,
        program: Program,
        states: Sequence[int],
        initial: Sequence[ProgramOperand | None],
        rows: Sequence[int],
        rounds: int | None,
        limit: int | None,
    ) -> list[ProgramTensor | None] | None:
        """The results of the node: last states, then rows; None if some size is not known.

        Args:
            program: The body's program.
            states, initial: Numbers of results that are states, and their first values.
            rows: Numbers of results that have a row for each round.
            rounds: The number of rounds, None if data decides it.
            limit: Upper bound of the number of rounds.
        """
        values = [tensor for _, tensor in program.outputs][-(len(states) + len(rows)) :]
        outputs: list[ProgramTensor | None] = []
        refused = False
        count = self._most_rounds(rows, limit) if rounds is None and rows else rounds
        for k, first, last in zip(states, initial, values, strict=False):
            assert first is not None
            shape = self._last_shape(len(outputs), first, last, rounds)
            if shape is None or last.dtype != to_dtype(first.dtype):
                reason = (
                    f"a carried value of {self.node.op} that changes from {operand_type(first)} to {operand_type(last)}"
                )
                self.problems.add(reason, self.node.name)
                refused = True
            outputs.append(self.result(k, last.dtype, shape or ()) if self.node.used[k] else None)
        for k, row in zip(rows, values[len(states) :], strict=True):
            shape = self._row_shape(len(outputs), k, row)
            refused |= shape is None
            outputs.append(self.result(k, row.dtype, (count or 0, *(shape or row.shape))))
        return None if refused or self.problems.nodes else outputs

    def _last_shape(
        self, state: int, first: ProgramOperand, last: ProgramTensor, rounds: int | None
    ) -> tuple[int, ...] | None:
        """The shape of a state after the last round, None if it is unknown."""
        if self.growing is None or self.growing.shape(state) is None:
            return tuple(first.shape) if self.outside(last) == tuple(first.shape) else None
        shape = list(first.shape)
        for (k, axis), inner in self.growing.inner.items():
            if k != state:
                continue
            size = self.growing.after((k, axis), rounds)
            (symbol,) = symbols(inner)
            initial = f"{self.sizes.size(shape[axis])}"
            self.measured.append(
                (self.growing.last[k, axis], MeasuredSize("state", state, axis, symbol.c_name, symbol.bounds, initial))
            )
            shape[axis] = self.growing.outer[k, axis] if size is None else size
            if size is None:
                self.found_last.append((symbol.c_name, shape[axis]))
        return tuple(shape)

    def _row_shape(self, number: int, result: int, row: ProgramTensor) -> tuple[int, ...] | None:
        """The shape of a row; sizes that the body finds are found once, and all rows must have them."""
        shape: list[int] = []
        for axis, inner in enumerate(row.shape):
            size = self.sizes.from_inside(inner)
            if size is None:
                try:
                    size = self.found.size(self.node.names[result] or self.node.name, (0, greatest(inner)))
                except Unbounded as unbounded:
                    self.problems.add(unbounded.reason, self.node.name)
                    return None
                variable = f"row{number}_{axis}"
                self.measured.append((inner, MeasuredSize("row", number, axis, variable, bounds(size))))
                self.found_last.append((variable, size))
            shape.append(size)
        return tuple(shape)

    def _most_rounds(self, rows: Sequence[int], limit: int | None) -> int | None:
        """How many rows there is room for, where data decides how many there are."""
        types = (self.node.types[k] for k in rows)
        declared = [t.shape[0] for t in types if t is not None and t.shape]
        number = next((n for n in declared if isinstance(n, int)), None)
        if number is not None:
            return number
        try:
            name = self.node.names[rows[0]] or self.node.name
            self.counted = self.found.size(name, (0, LARGEST if limit is None else greatest(limit)))
        except Unbounded as size:
            self.problems.add(size.reason, self.node.name)
            return None
        return greatest(self.counted)

    def _read_rounds(self, rows: Sequence[ProgramTensor | None]) -> None:
        """Adds results to the node: the number of rounds, which is the number of rows, and the sizes after the last
        round. They are read after the node.
        """
        node = self.nodes[-1]
        if self.counted is not None:
            count = ProgramTensor(f"{self.node.name}_rounds", ir.DataType.INT64, (1,))
            node.outputs.append(count)
            self.found.reading(count, [self.counted], self.nodes)
        if self.found_last:
            sizes = ProgramTensor(f"{self.node.name}_sizes", ir.DataType.INT64, (len(self.found_last),))
            node.outputs.append(sizes)
            self.found.reading(sizes, [size for _, size in self.found_last], self.nodes)
        if self.counted is None:
            return
        for row in rows:
            assert row is not None
            number = next(k for k, x in enumerate(self.results) if x is row)
            view = ProgramTensor(row.name, row.dtype, (self.counted, *row.shape[1:]))
            row.name = f"{row.name}_all"
            self.found.first(row, view, 0, self.counted, self.nodes)
            self.results[number] = view

    # ---- Scan ------------------------------------------------------------------------------------------

    def _scan(self) -> None:
        """A ``Scan``: a round for each slice of its last operands; other axes than the first are transposed."""
        attrs = dict(self.node.attrs)
        operands = list(self.node.operands)
        count = int(attr(self.node.attrs, "num_scan_inputs"))
        first = len(operands) - count
        in_axes, out_axes = _ints(attrs, "scan_input_axes"), _ints(attrs, "scan_output_axes")
        in_back, out_back = _ints(attrs, "scan_input_directions"), _ints(attrs, "scan_output_directions")
        graph = self.graph("body")
        given: list[tuple[ProgramOperand, OperandSource]] = []
        rounds = 0
        for k, x in enumerate(operands):
            assert x is not None
            name = graph.inputs[k].name or ""
            operands[k] = x = self.written(x)
            if k < first:
                given.append((_like(name, x), OperandSource("state", k)))
                continue
            axis = _at(in_axes, k - first) % len(x.shape)
            cut = self._moved(x, (axis, *(a for a in range(len(x.shape)) if a != axis)))
            rounds = cut.shape[0] if k == first else smallest(rounds, cut.shape[0])
            slice_ = ProgramTensor(name, to_dtype(cut.dtype), cut.shape[1:])
            given.append((slice_, OperandSource("slice", self.operand(cut), bool(_at(in_back, k - first)))))
        rows = [k for k in range(first, len(self.node.used)) if self.node.used[k]]
        found = self.lowered(graph, given, [*range(first), *rows])
        if found is None:
            return
        program, sources = found
        outputs = self._loop_results(program, range(first), operands[:first], rows, rounds, rounds)
        if outputs is None:
            return
        sinks = [Sink("state", k) for k in range(first)]
        sinks += [Sink("row", first + k, bool(_at(out_back, n - first))) for k, n in enumerate(rows)]
        states = tuple(LoopState(self.operand(x), k) for k, x in enumerate(operands[:first]) if x is not None)
        body = self.body(program, sources, sinks, typical(rounds))
        inner = self.sizes.size(rounds)
        self.finish(ControlLoop((body,), states, inner, sizes=tuple(self.sizes.arguments())), outputs)
        for k, number in enumerate(rows):
            raw = outputs[first + k]
            assert raw is not None
            rank = len(raw.shape)
            axis = _at(out_axes, number - first) % rank
            if axis:
                perm = list(range(1, rank))
                perm.insert(axis, 0)
                self.results[number] = self._moved(raw, tuple(perm))

    def _moved(self, x: ProgramOperand, perm: tuple[int, ...]) -> ProgramOperand:
        """The operand with its axes in another order."""
        if perm == tuple(range(len(perm))):
            return x
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x.transpose(perm))
        moved = ProgramTensor(f"{x.name}_moved", x.dtype, tuple(x.shape[p] for p in perm))
        self.nodes.append(ProgramNode(moved.name, _TRANSPOSE, {"perm": perm}, [x], [moved], x.dtype))
        return moved


def _stated_rounds(limit: ProgramOperand | None, condition: ProgramOperand | None) -> int | None:
    """The limit that the operands of a ``Loop`` give, None if data decides it."""
    if isinstance(condition, np.ndarray) and not condition.reshape(-1)[0]:
        return 0
    return largest(elements(limit)[0], 0) if isinstance(limit, np.ndarray) else None


def _handed_on(value: ir.Value) -> ir.Value:
    """The value that a result of a body is a copy of."""
    while (node := value.producer()) is not None and (node.domain, node.op_type) == ("", "Identity"):
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return value


def _constant(program: Program, tensor: ProgramTensor) -> bool | None:
    """The value of a condition that is the same in each round; None for other conditions."""
    made = next((node for node in program.nodes if tensor in node.outputs), None)
    if made is None or made.operator != IDENTITY or made.steps or not isinstance(made.inputs[0], np.ndarray):
        return None
    return bool(made.inputs[0].reshape(-1)[0])


def _is_true(condition: ProgramOperand | None) -> bool:
    return condition is None or (isinstance(condition, np.ndarray) and bool(condition.reshape(-1)[0]))


def _like(name: str, operand: ProgramOperand) -> ProgramTensor:
    return ProgramTensor(name, to_dtype(operand.dtype), operand.shape)


def _ints(attrs: Mapping[str, object], name: str) -> Sequence[int]:
    found = attrs.get(name, ())
    return found if isinstance(found, tuple) else ()


def _at(values: Sequence[int], index: int) -> int:
    return values[index] if index < len(values) else 0
