"""Lowers Loop and Scan: what rounds read, what they hand on, and the rows that they make."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.control.forms import UNKNOWN_ROUNDS, Loop, Measured, Sink, Source, State
from eqsat.codegen.control.growth import GrowingBody
from eqsat.codegen.control.lowering import BodyPlanner, ControlNode, Lowering, dtype_of, shown_type
from eqsat.codegen.found_sizes import FoundSizes, Unbounded
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import IDENTITY, Node, Operand, Program, Tensor
from eqsat.codegen.shape_values import elements
from eqsat.schema.attributes import attr
from eqsat.schema.size import LARGEST, bounds, largest, smallest
from eqsat.schema.size_questions import greatest, symbols, typical
from eqsat.schema.types import OpKey

_TRANSPOSE = OpKey("", "Transpose")


class LoopLowering(Lowering):
    """Lowers a ``Loop`` or a ``Scan``."""

    counted: int | None = None
    """The number of rounds, if data decides how many rows there are."""
    growing: GrowingBody | None = None
    """The states whose sizes rounds change."""

    def __init__(self, node: ControlNode, bodies: BodyPlanner, problems: Problems, found: FoundSizes) -> None:
        super().__init__(node, bodies, problems, found)
        self.measured: list[tuple[int, Measured]] = []
        self.found_last: list[tuple[str, int]] = []

    def lower(self) -> None:
        if self.node.op.name == "Loop":
            self._loop()
        else:
            self._scan()

    # ---- Loop ------------------------------------------------------------------------------------------

    def _loop(self) -> None:
        """A ``Loop``: rounds while the condition holds, at most as many as there is a limit."""
        limit, condition = self.node.operands[:2]
        initial = list(self.node.operands[2:])
        graph = self.graph("body")
        rounds = largest(elements(limit)[0], 0) if isinstance(limit, np.ndarray) else None
        if isinstance(condition, np.ndarray) and not condition.reshape(-1)[0]:
            rounds = 0
        # Inside of a round the condition holds.
        given: list[tuple[Operand, Source]] = [
            (Tensor("round", ir.DataType.INT64, ()), Source("round")),
            (np.array(True), Source("round")),
        ]
        most = self._most(limit) if rounds is None else greatest(rounds)
        if most is not None:
            self.round = (0, max(most - 1, 0))
        states: list[int] = []
        places: list[int] = []
        for k, x in enumerate(initial):
            assert x is not None
            if _handed_on(graph.outputs[1 + k]) is graph.inputs[2 + k]:
                given.append((x, Source("operand", self.operand(x)) if isinstance(x, Tensor) else Source("round")))
                self.results[k] = x
            else:
                initial[k] = x = self.written(x)
                places.append(len(given))
                given.append((_like(graph.inputs[2 + k].name or "", x), Source("state", len(states))))
                states.append(k)
        rows = [k for k in range(len(initial), len(self.node.used)) if self.node.used[k]]
        labels = [self.node.names[k] or self.node.name for k in states]
        results = [0, *(1 + k for k in states), *(1 + k for k in rows)]
        self.growing = GrowingBody(self, graph, given, places, labels, results, most)
        found = self.growing.lowered()
        if found is None:
            return
        program, sources = found
        sinks = [Sink("condition"), *(Sink("state", k) for k in range(len(states)))]
        again = _constant(program, program.outputs[0][1])
        if again is not None and rounds is not None and not again:
            rounds = smallest(rounds, 1)
        if again is not None and (again or rounds is not None):
            del program.outputs[0], sinks[0]
            program.remove_dead()
        else:
            self._check_condition(program.outputs[0][1])
        certain = sinks[:1] != [Sink("condition")] and _is_true(condition)
        if certain and isinstance(limit, Tensor) and rows and not self.growing.inner:
            rounds = self._counted(limit)
        known = rounds if rounds == 0 or certain else None
        if known is None and limit is None and again and _is_true(condition):
            self.problems.add("a Loop that never ends", self.node.name)
        first = [initial[k] for k in states]
        outputs = self._loop_results(program, states, first, rows, known, rounds)
        if outputs is None:
            return
        sinks += [Sink("row", len(states) + k) for k in range(len(rows))]
        times = UNKNOWN_ROUNDS if known is None else typical(known)
        control = Loop(
            (self.body(program, sources, sinks, times, [size for size, _ in self.measured]),),
            tuple(State(self.operand(x), k, self.growing.shape(k)) for k, x in enumerate(first) if x is not None),
            None if known is None else self.sizes.size(known),
            None if limit is None or known is not None else self.operand(self.written(limit)),
            None if known is not None or _is_true(condition) or condition is None else self.operand(condition),
            tuple(self.sizes.arguments()),
            None if self.counted is None else len(outputs),
            tuple(measured for _, measured in self.measured),
            None if not self.found_last else len(outputs) + (self.counted is not None),
            tuple(variable for variable, _ in self.found_last),
        )
        self.finish(control, list(outputs))
        self._read_rounds(outputs[len(states) :])

    def _most(self, limit: Operand | None) -> int | None:
        """The greatest number of rounds that data may say, None where nothing bounds it."""
        between = self.found.ranges.of(limit) if isinstance(limit, Tensor) else None
        return None if between is None or between[1] >= LARGEST else max(between[1], 0)

    def _counted(self, limit: Tensor) -> int | None:
        """A limit that data says, as a size; None where nothing bounds it."""
        try:
            return largest(elements(self.found.as_sizes(limit, self.node.name, signed=True))[0], 0)
        except Unbounded:
            return None

    def _check_condition(self, condition: Tensor) -> None:
        if condition.dtype != ir.DataType.BOOL or math.prod(condition.shape) != 1:
            self.problems.add(f"a condition of Loop that is {shown_type(condition)} and not one bool", self.node.name)

    def _loop_results(
        self,
        program: Program,
        states: Sequence[int],
        initial: Sequence[Operand | None],
        rows: Sequence[int],
        rounds: int | None,
        limit: int | None,
    ) -> list[Tensor | None] | None:
        """The results of the node: last states, then rows; None if some size is not known.

        Args:
            program: Of the body.
            states, initial: Numbers of results that are states, and their first values.
            rows: Numbers of results that have a row for each round.
            rounds: How many there are, None where data decides that.
            limit: There are no more.
        """
        values = [tensor for _, tensor in program.outputs][-(len(states) + len(rows)) :]
        outputs: list[Tensor | None] = []
        refused = False
        count = self._most_rounds(rows, limit) if rounds is None and rows else rounds
        for k, first, last in zip(states, initial, values, strict=False):
            assert first is not None
            shape = self._last_shape(len(outputs), first, last, rounds)
            if shape is None or last.dtype != dtype_of(first):
                reason = (
                    f"a carried value of {self.node.op} that changes from {shown_type(first)} to {shown_type(last)}"
                )
                self.problems.add(reason, self.node.name)
                refused = True
            outputs.append(self.result(k, last.dtype, shape or ()) if self.node.used[k] else None)
        for k, row in zip(rows, values[len(states) :], strict=True):
            shape = self._row_shape(len(outputs), k, row)
            refused |= shape is None
            outputs.append(self.result(k, row.dtype, (count or 0, *(shape or row.shape))))
        return None if refused or self.problems.nodes else outputs

    def _last_shape(self, state: int, first: Operand, last: Tensor, rounds: int | None) -> tuple[int, ...] | None:
        """The shape of a state after the last round, None where it is not known."""
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
                (self.growing.last[k, axis], Measured("state", state, axis, symbol.c_name, symbol.bounds, initial))
            )
            shape[axis] = self.growing.outer[k, axis] if size is None else size
            if size is None:
                self.found_last.append((symbol.c_name, shape[axis]))
        return tuple(shape)

    def _row_shape(self, number: int, result: int, row: Tensor) -> tuple[int, ...] | None:
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
                self.measured.append((inner, Measured("row", number, axis, variable, bounds(size))))
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

    def _read_rounds(self, rows: Sequence[Tensor | None]) -> None:
        """Further results of the node are the number of rounds, so many rows there are, and sizes after the last one;
        they are read after it.
        """
        node = self.nodes[-1]
        if self.counted is not None:
            count = Tensor(f"{self.node.name}_rounds", ir.DataType.INT64, (1,))
            node.outputs.append(count)
            self.found.reading(count, [self.counted], self.nodes)
        if self.found_last:
            sizes = Tensor(f"{self.node.name}_sizes", ir.DataType.INT64, (len(self.found_last),))
            node.outputs.append(sizes)
            self.found.reading(sizes, [size for _, size in self.found_last], self.nodes)
        if self.counted is None:
            return
        for row in rows:
            assert row is not None
            number = next(k for k, x in enumerate(self.results) if x is row)
            view = Tensor(row.name, row.dtype, (self.counted, *row.shape[1:]))
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
        given: list[tuple[Operand, Source]] = []
        rounds = 0
        for k, x in enumerate(operands):
            assert x is not None
            name = graph.inputs[k].name or ""
            operands[k] = x = self.written(x)
            if k < first:
                given.append((_like(name, x), Source("state", k)))
                continue
            axis = _at(in_axes, k - first) % len(x.shape)
            cut = self._moved(x, (axis, *(a for a in range(len(x.shape)) if a != axis)))
            rounds = cut.shape[0] if k == first else smallest(rounds, cut.shape[0])
            slice_ = Tensor(name, dtype_of(cut), cut.shape[1:])
            given.append((slice_, Source("slice", self.operand(cut), bool(_at(in_back, k - first)))))
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
        states = tuple(State(self.operand(x), k) for k, x in enumerate(operands[:first]) if x is not None)
        body = self.body(program, sources, sinks, typical(rounds))
        inner = self.sizes.size(rounds)
        self.finish(Loop((body,), states, inner, sizes=tuple(self.sizes.arguments())), outputs)
        for k, number in enumerate(rows):
            raw = outputs[first + k]
            assert raw is not None
            rank = len(raw.shape)
            axis = _at(out_axes, number - first) % rank
            if axis:
                perm = list(range(1, rank))
                perm.insert(axis, 0)
                self.results[number] = self._moved(raw, tuple(perm))

    def _moved(self, x: Operand, perm: tuple[int, ...]) -> Operand:
        """The operand with its axes in another order."""
        if perm == tuple(range(len(perm))):
            return x
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x.transpose(perm))
        moved = Tensor(f"{x.name}_moved", x.dtype, tuple(x.shape[p] for p in perm))
        self.nodes.append(Node(moved.name, _TRANSPOSE, {"perm": perm}, [x], [moved], x.dtype))
        return moved


def _handed_on(value: ir.Value) -> ir.Value:
    """The value that a result of a body is a copy of."""
    while (node := value.producer()) is not None and (node.domain, node.op_type) == ("", "Identity"):
        source = node.inputs[0]
        if source is None:
            break
        value = source
    return value


def _constant(program: Program, tensor: Tensor) -> bool | None:
    """The value of a condition that is the same in each round, None for others."""
    made = next((node for node in program.nodes if tensor in node.outputs), None)
    if made is None or made.operator != IDENTITY or made.steps or not isinstance(made.inputs[0], np.ndarray):
        return None
    return bool(made.inputs[0].reshape(-1)[0])


def _is_true(condition: Operand | None) -> bool:
    return condition is None or (isinstance(condition, np.ndarray) and bool(condition.reshape(-1)[0]))


def _like(name: str, operand: Operand) -> Tensor:
    return Tensor(name, dtype_of(operand), operand.shape)


def _ints(attrs: Mapping[str, object], name: str) -> Sequence[int]:
    found = attrs.get(name, ())
    return found if isinstance(found, tuple) else ()


def _at(values: Sequence[int], index: int) -> int:
    return values[index] if index < len(values) else 0
