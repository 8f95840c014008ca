"""Lowers If, Loop and Scan: a node whose bodies are programs, with the operands and results of all of them."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import onnx_ir as ir

from eqsat.codegen.canonical import Made
from eqsat.codegen.control.forms import (
    BRANCH,
    CONTROL,
    UNKNOWN_ROUNDS,
    Body,
    Branches,
    Control,
    Loop,
    Sink,
    Source,
    State,
)
from eqsat.codegen.control.sizes import ReceivedSizes, common_range, merged
from eqsat.codegen.found_sizes import FoundSizes
from eqsat.codegen.placed_program import Layout
from eqsat.codegen.problems import Problems
from eqsat.codegen.program import Node, Operand, Program, Tensor
from eqsat.codegen.shape_values import is_sizes
from eqsat.schema.attributes import attr
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import Attrs, GraphAttr, OpKey, TensorType

SUPPORTED = frozenset(OpKey("", name) for name in ("If", "Loop", "Scan"))
"""Control flow that can become C."""
_IDENTITY = OpKey("", "Identity")
_TRANSPOSE = OpKey("", "Transpose")


class BodyPlanner(Protocol):
    """What makes programs of bodies."""

    def lower(
        self,
        name: str,
        graph: ir.Graph,
        given: Sequence[Operand],
        captured: Mapping[str, Operand],
        results: Sequence[int],
        sizes: FreeSizes,
    ) -> Program | None:
        """The program of a body: its inputs are the tensors among ``given``, then those among ``captured``."""
        ...

    def place(self, program: Program, times: float) -> Layout:
        """The places of the tensors of a lowered body that is executed so many times."""
        ...


@dataclass(frozen=True)
class ControlNode:
    """A node of control flow.

    Attributes:
        name: For messages.
        op: If, Loop, Scan or SequenceMap.
        attrs: The bodies among them.
        operands: Its own, None where absent.
        captured: By name what its bodies read from outside; None where that was refused.
        types: Of its results as far as they are known.
        used: Which results have readers.
        names: Of its results.
    """

    name: str
    op: OpKey
    attrs: Attrs
    operands: Sequence[Operand | None]
    captured: Mapping[str, Operand | None]
    types: Sequence[TensorType | None]
    used: Sequence[bool]
    names: Sequence[str]


def lower_control(node: ControlNode, bodies: BodyPlanner, problems: Problems, found: FoundSizes) -> Made:
    """The nodes that stand for a node of control flow, and what its results are; None for those that were refused."""
    captured = {name: x for name, x in node.captured.items() if x is not None}
    lowering = _Lowering(node, captured, bodies, problems, found)
    operands = [*node.operands, *captured.values()]
    if any(is_sizes(x) for x in operands) or (node.op.name != "If" and any(map(_has_free_size, operands))):
        problems.add(f"{node.op.name} whose operands have free sizes (set them with --dim)", node.name)
    elif len(captured) == len(node.captured):
        if node.op == OpKey("", "If"):
            lowering.branches()
        elif node.op == OpKey("", "Loop"):
            lowering.loop()
        elif node.op == OpKey("", "Scan"):
            lowering.scan()
        else:
            problems.add(f"control flow ({node.op.name})", node.name)
    return lowering.nodes, lowering.results


def _has_free_size(operand: Operand | None) -> bool:
    return operand is not None and any_free(operand.shape)


class _Lowering:
    def __init__(
        self,
        node: ControlNode,
        captured: Mapping[str, Operand],
        bodies: BodyPlanner,
        problems: Problems,
        found: FoundSizes,
    ) -> None:
        self.node = node
        self.captured = captured
        self.bodies = bodies
        self.problems = problems
        self.found = found
        self.nodes: list[Node] = []
        self.results: list[Operand | None] = [None] * len(node.used)
        self.inputs: list[Operand | None] = []
        self.sizes = ReceivedSizes()

    # ---- the parts -------------------------------------------------------------------------------------

    def _operand(self, operand: Operand) -> int:
        """Number of an operand of the node; one that several bodies read is an operand once."""
        for k, known in enumerate(self.inputs):
            if known is operand:
                return k
        self.inputs.append(operand)
        return len(self.inputs) - 1

    def _graph(self, name: str) -> ir.Graph:
        found = attr(self.node.attrs, name)
        assert isinstance(found, GraphAttr)
        return found.graph

    def _lowered(
        self, graph: ir.Graph, given: Sequence[tuple[Operand, Source]], results: Sequence[int]
    ) -> tuple[Program, dict[Tensor, Source]] | None:
        """A body's program, and what its inputs are."""
        captured = {name: self.captured[name] for name in _captured(self.node.attrs, graph)}
        inside = {name: self.sizes.operand(x) for name, x in captured.items()}
        program = self.bodies.lower(self.node.name, graph, [x for x, _ in given], inside, results, self.sizes.ranges)
        if program is None:
            return None
        sources = [source for x, source in given if isinstance(x, Tensor)]
        sources += [Source("operand", self._operand(x)) for x in captured.values() if isinstance(x, Tensor)]
        return program, dict(zip(program.inputs, sources, strict=True))

    def _body(
        self,
        program: Program,
        sources: Mapping[Tensor, Source],
        sinks: Sequence[Sink],
        times: float,
        reported: Sequence[int] = (),
    ) -> Body:
        """A body without the inputs that it does not read."""
        read = {t for node in program.nodes for t in node.reads()} | {t for _, t in program.outputs}
        program.inputs = [t for t in program.inputs if t in read]
        layout = self.bodies.place(program, times)
        return Body(program, layout, tuple(sources[t] for t in program.inputs), tuple(sinks), tuple(reported))

    def _result(self, number: int, dtype: ir.DataType, shape: Sequence[int]) -> Tensor:
        name = self.node.names[number] or f"{self.node.name}_{number}"
        result = Tensor(name, dtype, tuple(shape))
        self.results[number] = result
        return result

    def _finish(self, control: Control, outputs: list[Tensor | None]) -> None:
        dtype = next((t.dtype for t in outputs if t is not None), ir.DataType.FLOAT)
        self.nodes.append(Node(self.node.name, self.node.op, {CONTROL: control}, list(self.inputs), outputs, dtype))

    # ---- If --------------------------------------------------------------------------------------------

    def branches(self) -> None:
        """An ``If``: both branches write the same results; a condition that is known leaves one."""
        condition = self.node.operands[0]
        assert condition is not None
        names = ["then_branch", "else_branch"]
        if isinstance(condition, np.ndarray):
            names = names[:1] if condition.reshape(-1)[0] else names[1:]
        else:
            self._operand(condition)
        wanted = [k for k, used in enumerate(self.node.used) if used]
        made = [self._lowered(self._graph(name), [], wanted) for name in names]
        if any(found is None for found in made):
            return
        programs = [found for found in made if found is not None]
        outputs: list[Tensor | None] = []
        unknown: list[list[int]] = []
        for k, number in enumerate(wanted):
            kinds = [program.outputs[k][1] for program, _ in programs]
            if len({(t.dtype, len(t.shape)) for t in kinds}) > 1:
                shown = " or ".join(str(_type(t)) for t in kinds)
                self.problems.add(f"a result of If of unknown rank, {shown}", self.node.name)
                return
            shape: list[int] = []
            for inner in zip(*(t.shape for t in kinds), strict=True):
                size = merged(map(self.sizes.from_inside, inner))
                if size is None:
                    unknown.append(list(inner))
                    size = self.found.size(self.node.names[number] or self.node.name, common_range(inner))
                shape.append(size)
            outputs.append(self._result(number, kinds[0].dtype, shape))
        bodies = []
        for j, (program, sources) in enumerate(programs):
            sinks = [Sink("result", k) for k in range(len(wanted))]
            reported = [inner[j] for inner in unknown]
            bodies.append(self._body(program, sources, sinks, BRANCH if len(made) > 1 else 1.0, reported))
        self._finish(Branches(tuple(bodies), sizes=tuple(self.sizes.arguments())), outputs)
        self._read(outputs, len(unknown))

    def _read(self, outputs: Sequence[Tensor | None], count: int) -> None:
        """A further result of the node has the sizes that data decides; they are read after it."""
        if not count:
            return
        values = Tensor(f"{self.node.name}_sizes", ir.DataType.INT64, (count,))
        self.nodes[-1].outputs.append(values)
        self.found.reading(values, self.found.made[-count:], self.nodes)

    # ---- Loop ------------------------------------------------------------------------------------------

    def loop(self) -> None:
        """A ``Loop``: rounds while the condition holds, at most as many as there is a limit."""
        limit, condition = self.node.operands[:2]
        initial = list(self.node.operands[2:])
        graph = self._graph("body")
        rounds = int(limit.reshape(-1)[0]) if isinstance(limit, np.ndarray) else None
        if isinstance(condition, np.ndarray) and not condition.reshape(-1)[0]:
            rounds = 0
        # Inside of a round the condition holds.
        given: list[tuple[Operand, Source]] = [
            (Tensor("round", ir.DataType.INT64, ()), Source("round")),
            (np.array(True), Source("round")),
        ]
        states: list[int] = []
        for k, x in enumerate(initial):
            assert x is not None
            if _handed_on(graph.outputs[1 + k]) is graph.inputs[2 + k]:
                given.append((x, Source("operand", self._operand(x)) if isinstance(x, Tensor) else Source("round")))
                self.results[k] = x
            else:
                given.append((_like(graph.inputs[2 + k].name or "", x), Source("state", len(states))))
                states.append(k)
        rows = [k for k in range(len(initial), len(self.node.used)) if self.node.used[k]]
        found = self._lowered(graph, given, [0, *(1 + k for k in states), *(1 + k for k in rows)])
        if found is None:
            return
        program, sources = found
        sinks = [Sink("condition"), *(Sink("state", k) for k in range(len(states)))]
        again = _constant(program, program.outputs[0][1])
        if again is not None and rounds is not None and not again:
            rounds = min(rounds, 1)
        if again is not None and (again or rounds is not None):
            del program.outputs[0], sinks[0]
            program.remove_dead()
        else:
            self._check_condition(program.outputs[0][1])
        known = rounds if rounds == 0 or (sinks[:1] != [Sink("condition")] and _is_true(condition)) else None
        if known is None and limit is None and again and _is_true(condition):
            self.problems.add("a Loop that never ends", self.node.name)
        first = [initial[k] for k in states]
        outputs = self._loop_results(program, states, first, rows, known, self.node.types)
        if outputs is None:
            return
        sinks += [Sink("row", len(states) + k) for k in range(len(rows))]
        control = Loop(
            (self._body(program, sources, sinks, UNKNOWN_ROUNDS if known is None else max(known, 0)),),
            tuple(State(self._operand(x), k) for k, x in enumerate(first) if x is not None),
            None if known is None else max(known, 0),
            None if limit is None or known is not None else self._operand(limit),
            None if known is not None or _is_true(condition) or condition is None else self._operand(condition),
        )
        self._finish(control, outputs)

    def _check_condition(self, condition: Tensor) -> None:
        if condition.dtype != ir.DataType.BOOL or math.prod(condition.shape) != 1:
            self.problems.add(f"a condition of Loop that is {_type(condition)} and not one bool", self.node.name)

    def _loop_results(
        self,
        program: Program,
        states: Sequence[int],
        initial: Sequence[Operand | None],
        rows: Sequence[int],
        rounds: int | None,
        declared: Sequence[TensorType | None],
    ) -> list[Tensor | None] | None:
        """The results of the node: last states, then rows; None if some size is not known."""
        values = [tensor for _, tensor in program.outputs][-(len(states) + len(rows)) :]
        outputs: list[Tensor | None] = []
        refused = False
        for k, first, last in zip(states, initial, values, strict=False):
            assert first is not None
            if _type(first) != _type(last):
                reason = f"a carried value of {self.node.op} that changes from {_type(first)} to {_type(last)}"
                self.problems.add(reason, self.node.name)
                refused = True
            outputs.append(self._result(k, last.dtype, last.shape) if self.node.used[k] else None)
        for k, row in zip(rows, values[len(states) :], strict=True):
            known, count = declared[k], rounds
            if count is None and known is not None and known.shape:
                count = size if isinstance(size := known.shape[0], int) else None
            if count is None:
                reason = f"a result of {self.node.op} of unknown size, a row of {_type(row)} for each round"
                self.problems.add(reason, self.node.name)
                refused = True
            outputs.append(self._result(k, row.dtype, (max(count or 0, 0), *row.shape)))
        return None if refused or self.problems.nodes else outputs

    # ---- Scan ------------------------------------------------------------------------------------------

    def scan(self) -> None:
        """A ``Scan``: a round for each slice of its last operands; other axes than the first are transposed."""
        attrs = dict(self.node.attrs)
        operands = list(self.node.operands)
        count = int(attr(self.node.attrs, "num_scan_inputs"))
        first = len(operands) - count
        in_axes, out_axes = _ints(attrs, "scan_input_axes"), _ints(attrs, "scan_output_axes")
        in_back, out_back = _ints(attrs, "scan_input_directions"), _ints(attrs, "scan_output_directions")
        graph = self._graph("body")
        given: list[tuple[Operand, Source]] = []
        rounds = 0
        for k, x in enumerate(operands):
            assert x is not None
            name = graph.inputs[k].name or ""
            if k < first:
                given.append((_like(name, x), Source("state", k)))
                continue
            axis = _at(in_axes, k - first) % len(x.shape)
            cut = self._moved(x, (axis, *(a for a in range(len(x.shape)) if a != axis)))
            rounds = cut.shape[0]
            slice_ = Tensor(name, _dtype(cut), cut.shape[1:])
            given.append((slice_, Source("slice", self._operand(cut), bool(_at(in_back, k - first)))))
        rows = [k for k in range(first, len(self.node.used)) if self.node.used[k]]
        found = self._lowered(graph, given, [*range(first), *rows])
        if found is None:
            return
        program, sources = found
        outputs = self._loop_results(program, range(first), operands[:first], rows, rounds, self.node.types)
        if outputs is None:
            return
        sinks = [Sink("state", k) for k in range(first)]
        sinks += [Sink("row", first + k, bool(_at(out_back, n - first))) for k, n in enumerate(rows)]
        states = tuple(State(self._operand(x), k) for k, x in enumerate(operands[:first]) if x is not None)
        self._finish(Loop((self._body(program, sources, sinks, rounds),), states, rounds), outputs)
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


def _captured(attrs: Attrs, graph: ir.Graph) -> tuple[str, ...]:
    """Names of what one of the bodies reads from outside."""
    return next(v.captured for _, v in attrs if isinstance(v, GraphAttr) and v.graph is graph)


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
    if made is None or made.operator != _IDENTITY or made.steps or not isinstance(made.inputs[0], np.ndarray):
        return None
    return bool(made.inputs[0].reshape(-1)[0])


def _is_true(condition: Operand | None) -> bool:
    return condition is None or (isinstance(condition, np.ndarray) and bool(condition.reshape(-1)[0]))


def _dtype(operand: Operand) -> ir.DataType:
    return operand.dtype if isinstance(operand, Tensor) else ir.DataType.from_numpy(operand.dtype)


def _type(operand: Operand) -> TensorType:
    return TensorType(_dtype(operand), operand.shape)


def _like(name: str, operand: Operand) -> Tensor:
    return Tensor(name, _dtype(operand), operand.shape)


def _ints(attrs: Mapping[str, object], name: str) -> Sequence[int]:
    found = attrs.get(name, ())
    return found if isinstance(found, tuple) else ()


def _at(values: Sequence[int], index: int) -> int:
    return values[index] if index < len(values) else 0
