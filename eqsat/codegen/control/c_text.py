"""The C of control flow: a function that branches or repeats, and calls the functions of the bodies.

Its parameters are the node's operands ``x0``, ``x1`` … and results ``y0``, ``y1`` …, the working memory and weights.
Values that one round hands to the next alternate between two places, one of which is the result. So only the last value
is ever copied, and only if data decides the number of rounds.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np

from eqsat.codegen import c_types
from eqsat.codegen.buffers import ALIGNMENT
from eqsat.codegen.control.control_node import Branches, Control, ControlLoop, OperandSource, Sink
from eqsat.codegen.isa import Isa
from eqsat.codegen.program import ProgramNode, ProgramTensor
from eqsat.schema.size_questions import greatest
from eqsat.schema.symbol import Symbol
from eqsat.text import plain


class BodyFunction(Protocol):
    """The function of a body: its arguments are the inputs and outputs, working memory and weights."""

    @property
    def arena(self) -> int:
        """Bytes of working memory."""
        ...

    def move(self, offset: int) -> None:
        """A statement that moves the beginning of the working memory by this many bytes of the arena."""
        ...

    def function(self, isa: Isa, label: str) -> list[str]:
        """The function for an instruction set, and those it calls before it."""
        ...


_PARTS = ("body", "then", "else")


@dataclass
class ControlText:
    """The functions of one node.

    Attributes:
        node: The node with the control flow.
        control: Its description.
        label: The beginning of the functions' names.
        functions: The functions of the bodies.
        constant: Makes the pointer to a constant.
        common: C type and name of the parameters that all functions have.
        upper: Prefix of the program's constants.
        scratch: Bytes of working memory in all.
        own: Those of them that precede the bodies' working memory.
    """

    node: ProgramNode
    control: Control
    label: str
    functions: Sequence[BodyFunction]
    constant: Callable[[np.ndarray], str]
    common: tuple[tuple[str, str], ...]
    upper: str
    scratch: int = 0
    own: int = 0
    _places: dict[tuple[str, int], int] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if isinstance(self.control, ControlLoop):
            self._reserve(self.control)
        self.scratch = self.own + max(f.arena for f in self.functions)
        for function in self.functions:
            function.move(self.own)

    def _reserve(self, loop: ControlLoop) -> None:
        """Places for the values that alternate with the results, and for rows beyond a result's size."""
        for (_, tensor), sink in self._results():
            spares: list[str] = []
            if sink.kind == "state":
                state = loop.states[sink.index]
                grows = state.shape is not None
                spares += ["spare"] if grows or loop.fixed is None or loop.fixed > 1 else []
                # A value made by a round may be larger than the result until its size is compared.
                spares += ["last"] if grows or self.node.outputs[state.result] is None else []
            elif sink.kind == "row" and (loop.rounds is None or self._measured("row", sink.index)):
                spares.append("row")
            for kind in spares:
                self._places[kind, sink.index] = self.own
                self.own += -(-greatest(_bytes(tensor)) // ALIGNMENT) * ALIGNMENT

    def move(self, offset: int) -> None:
        """A statement that moves the beginning of the working memory by this many bytes of the arena."""
        self._places = {key: at + offset for key, at in self._places.items()}
        for function in self.functions:
            function.move(offset)

    # ---- functions -------------------------------------------------------------------------------------

    def written(self, isa: Isa) -> list[str]:
        """The functions for an instruction set, in an order in which they can be compiled."""
        made: list[str] = []
        for function, name in zip(self.functions, self._names(), strict=True):
            made += function.function(isa, f"{name}_{isa.name}")
        parameters = [
            *(f"const {_c(x)} *x{i}" for i, x in enumerate(self.node.inputs) if isinstance(x, ProgramTensor)),
            *(f"{_c(y)} *y{i}" for i, y in enumerate(self.node.outputs) if y is not None),
            *(f"ptrdiff_t {name}" for name, _ in self.control.sizes),
            *(f"{c}{name}" for c, name in self.common),
        ]
        names = [re.split(r"[ *]+", p)[-1] for p in parameters]
        lines = [f"(void){name};" for name in names]
        for i, x in enumerate(self.node.inputs):
            if isinstance(x, np.ndarray):
                c = c_types.c_type(c_types.as_stored(x))
                lines += [f"const {c} *x{i} = {self.constant(x)};", f"(void)x{i};"]
        if isinstance(self.control, Branches):
            lines += self._branches(self.control, isa)
        else:
            lines += self._loop(self.control, isa)
        if self.control.ends:
            lines.append("return 0;")
        head = f"static {self._returned} {self.label}_{isa.name}({', '.join(parameters)}) {{"
        what = plain(f"{self.node.name}: {self.node.operator.name}")
        return [*made, "\n".join([f"/* {what} */", head, *(f"    {line}" for line in lines), "}"])]

    def call(self, isa: Isa, arguments: Sequence[str]) -> list[str]:
        """The call of the function with the node's operands and results."""
        common = (name for _, name in self.common)
        given = ", ".join([*arguments, *(n for _, n in self.control.sizes), *common])
        return [
            f"/* {plain(f'{self.node.name}: {self.node.operator.name}')} */",
            checked(f"{self.label}_{isa.name}({given})", is_checked=self.control.ends),
        ]

    @property
    def _returned(self) -> str:
        return "int" if self.control.ends else "void"

    def _names(self) -> list[str]:
        if isinstance(self.control, ControlLoop):
            return [f"{self.label}_body"]
        return [f"{self.label}_{part}" for part in ("then", "else")[: len(self.functions)]]

    def _call_of(self, number: int, isa: Isa) -> str:
        body = self.control.bodies[number]
        inputs = [self._source(s, t) for s, t in zip(body.sources, body.program.inputs, strict=True)]
        outputs = [self._sink(s, t) for s, (_, t) in zip(body.sinks, body.program.outputs, strict=True)]
        if body.reported:
            outputs.append("found" if isinstance(self.control, ControlLoop) else f"y{len(self.node.outputs) - 1}")
        sizes = [Symbol(name, size).c_name for name, size in body.program.sizes]
        arguments = ", ".join([*inputs, *outputs, *sizes, *(name for _, name in self.common)])
        return checked(f"{self._names()[number]}_{isa.name}({arguments})", is_checked=body.ends)

    def _branches(self, branches: Branches, isa: Isa) -> list[str]:
        if len(branches.bodies) == 1:
            return [self._call_of(0, isa)]
        return [
            f"if (x{branches.condition}[0]) {{",
            f"    {self._call_of(0, isa)}",
            "} else {",
            f"    {self._call_of(1, isa)}",
            "}",
        ]

    # ---- loops -----------------------------------------------------------------------------------------

    def _loop(self, loop: ControlLoop, isa: Isa) -> list[str]:
        before: list[str] = []
        tests: list[str] = []
        if loop.limit is not None:
            before.append(f"const int64_t limit = x{loop.limit}[0];")
            tests.append("trip < limit")
        if loop.rounds is not None:
            tests.append(f"trip < {loop.rounds}")
        elif loop.condition is not None or Sink("condition") in loop.bodies[0].sinks:
            before.append(f"uint8_t again = {1 if loop.condition is None else f'x{loop.condition}[0]'};")
            tests.append("again")
        before += [f"ptrdiff_t {m.variable} = {m.first};" for m in loop.measured]
        inside = [f"int64_t found[{len(loop.measured)}];"] if loop.measured else []
        inside += [self._call_of(0, isa), *self._measurements(loop)]
        after: list[str] = []
        for k, state in enumerate(loop.states):
            c = _c(self._result("state", k))
            first, second = self._alternating(loop, k)
            before += [f"const {c} *state{k} = x{state.operand};", f"{c} *next{k} = {first}, *other{k} = {second};"]
            inside += [f"{c} *const made{k} = next{k};", f"state{k} = made{k};"]
            inside += [f"next{k} = other{k};", f"other{k} = made{k};"]
            y = self.node.outputs[state.result]
            if y is not None and (not loop.fixed or state.shape is not None):
                last = self._result("state", k)
                size = _bytes(last if state.shape is None else ProgramTensor(last.name, last.dtype, state.shape))
                after.append(f"if (state{k} != y{state.result}) memcpy(y{state.result}, state{k}, {size});")
        after += [f"y{loop.reported}[{n}] = {name};" for n, name in enumerate(loop.last_sizes)]
        if loop.counted is not None:
            after.append(f"y{loop.counted}[0] = trip;")
        elif loop.rounds is None:
            for index, row, y in self._rows():
                if y.shape[0]:
                    after += [f"if (trip < {y.shape[0]})"]
                    count = self._elements_of_row(index, row)
                    at, rest = f"y{index} + trip * {count}", f"(size_t)({y.shape[0]} - trip)"
                    after.append(f"    memset({at}, 0, {rest} * {count} * {c_types.size(row.dtype)});")
        head = f"for (; {' && '.join(tests)}; trip++) {{"
        return [*before, "int64_t trip = 0;", head, *(f"    {line}" for line in inside), "}", *after]

    def _measurements(self, loop: ControlLoop) -> list[str]:
        """Statements after a round that compare the sizes it reports, and then copy the rows that have such sizes."""
        lines: list[str] = []
        for n, m in enumerate(loop.measured):
            tests = [f"found[{n}] < {m.between[0]}", f"found[{n}] > {m.between[1]}"]
            tests += [f"(trip > 0 && found[{n}] != {m.variable})"] if m.kind == "row" else []
            lines.append(f"if ({' || '.join(tests)}) return {self.upper}_SIZE_OUT_OF_RANGE;")
        lines += [f"{m.variable} = (ptrdiff_t)found[{n}];" for n, m in enumerate(loop.measured)]
        for index, row, y in self._rows():
            if not self._measured("row", index):
                continue
            count = self._elements_of_row(index, row)
            copy = f"memcpy(y{index} + trip * {count}, {self._at('row', index, row)}, "
            copy += f"(size_t)({count}) * {c_types.size(row.dtype)});"
            lines.append(copy if loop.rounds is not None else f"if (trip < {y.shape[0]}) {copy}")
        return lines

    def _measured(self, kind: str, index: int) -> dict[int, str]:
        """The variables of sizes that the body reports, by axis."""
        assert isinstance(self.control, ControlLoop)
        return {m.axis: m.variable for m in self.control.measured if (m.kind, m.index) == (kind, index)}

    def _elements_of_row(self, index: int, row: ProgramTensor) -> str:
        """C of the number of elements of a row."""
        named = self._measured("row", index)
        if not named:
            return f"{math.prod(row.shape)}"
        rest = math.prod(n for axis, n in enumerate(row.shape) if axis not in named)
        return f"({' * '.join([*named.values(), f'({rest})'])})"

    def _alternating(self, loop: ControlLoop, state: int) -> tuple[str, str]:
        """Where the first round writes the next value of a state, and where the second one does."""
        tensor = self._result("state", state)
        result = f"y{loop.states[state].result}"
        if ("last", state) in self._places:
            result = self._at("last", state, tensor)
        if ("spare", state) not in self._places:
            return result, result
        spare = self._at("spare", state, tensor)
        return (spare, result) if loop.fixed is not None and loop.fixed % 2 == 0 else (result, spare)

    def _results(self) -> list[tuple[tuple[str, ProgramTensor], Sink]]:
        body = self.control.bodies[0]
        return list(zip(body.program.outputs, body.sinks, strict=True))

    def _rows(self) -> Iterator[tuple[int, ProgramTensor, ProgramTensor]]:
        """The results of the node that get one row in each round: their numbers, the row, and the result."""
        for (_, row), sink in self._results():
            y = self.node.outputs[sink.index] if sink.kind == "row" else None
            if y is not None:
                yield sink.index, row, y

    def _result(self, kind: str, index: int) -> ProgramTensor:
        return next(t for (_, t), sink in self._results() if (sink.kind, sink.index) == (kind, index))

    def _at(self, kind: str, index: int, tensor: ProgramTensor) -> str:
        return f"({_c(tensor)} *)(arena + {self._places[kind, index]})"

    # ---- arguments of bodies ---------------------------------------------------------------------------

    def _source(self, source: OperandSource, tensor: ProgramTensor) -> str:
        if source.kind == "round":
            return "&trip"
        if source.kind == "state":
            return f"state{source.index}"
        if source.kind == "slice":
            return f"x{source.index} + {self._trip(source.backwards)} * {math.prod(tensor.shape)}"
        return f"x{source.index}"

    def _sink(self, sink: Sink, tensor: ProgramTensor) -> str:
        if sink.kind == "condition":
            return "&again"
        if sink.kind == "state":
            return f"next{sink.index}"
        if sink.kind == "row":
            place = f"y{sink.index} + {self._trip(sink.backwards)} * {math.prod(tensor.shape)}"
            if ("row", sink.index) not in self._places:
                return place
            if self._measured("row", sink.index):
                return self._at("row", sink.index, tensor)
            y = self.node.outputs[sink.index]
            assert y is not None
            return f"trip < {y.shape[0]} ? {place} : {self._at('row', sink.index, tensor)}"
        return f"y{sink.index}"

    def _trip(self, backwards: bool) -> str:
        assert isinstance(self.control, ControlLoop)
        return f"({self.control.rounds} - 1 - trip)" if backwards else "trip"


def checked(call: str, *, is_checked: bool) -> str:
    """A call, which may end the function with a status."""
    return f"{{ const int status = {call}; if (status != 0) return status; }}" if is_checked else f"{call};"


def _c(tensor: ProgramTensor) -> str:
    return c_types.storage(tensor.dtype)


def _bytes(tensor: ProgramTensor) -> int:
    return math.prod(tensor.shape) * c_types.size(tensor.dtype)


def free_label(name: str, taken: set[str]) -> str:
    """A beginning of names that no other function of the program has, for a node and its bodies; it is taken then."""
    label, k = name, 0
    while not taken.isdisjoint(names := {label, *(f"{label}_{part}" for part in _PARTS)}):
        k += 1
        label = f"{name}_{k}"
    taken.update(names)
    return label
