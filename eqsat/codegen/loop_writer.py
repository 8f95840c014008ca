"""Writes the C of kernels that are loops over elements: operands through strides, the epilogue at the store.

w = LoopWriter(task)
x, y = w.input(0), task.output
with w.loops("i", y.shape) as index:                 # for (ptrdiff_t i0 = 0; ...) and so on
    w.store(f"-{w.load(x, index)}", index)           # epilogue and store to y0
return w.kernel()
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions import scalar, small_floats
from eqsat.codegen.expressions.expression_table import Argument
from eqsat.codegen.kernel import Epilogue, GeneratedKernel, Step, Task, View, dense_strides
from eqsat.codegen.parallel import MARK
from eqsat.schema.size_questions import magnitude
from eqsat.schema.types import Shape

Indices = Sequence[str]
"""A C expression for each axis."""


@dataclass(frozen=True, slots=True)
class LoopOperand:
    """An operand in C.

    Attributes:
        name: Of the pointer.
        dtype: Element type.
        shape: Dimensions.
        strides: In elements.
    """

    name: str
    dtype: ir.DataType
    shape: Shape
    strides: Shape


def offset(strides: Shape, index: Indices) -> str:
    """C expression of an element's distance from element [0, ..., 0]."""
    terms = []
    for stride, i in zip(strides, index, strict=True):
        if stride == 0 or i == "0":
            continue
        name = i if i.isidentifier() or i.isdigit() else f"({i})"
        terms.append(name if stride == 1 else f"{name} * {stride}")
    return " + ".join(terms) or "0"


def broadcast_strides(shape: Shape, strides: Shape, to: Shape) -> Shape:
    """Strides of an array repeated to a shape."""
    lead = len(to) - len(shape)
    return tuple(0 if a < lead or shape[a - lead] == 1 else strides[a - lead] for a in range(len(to)))


def is_scalar_epilogue(epilogue: Epilogue) -> bool:
    """Whether every step has a scalar expression for its types; for a family's ``accepts``."""
    types = epilogue.dtypes()
    for step in epilogue.steps:
        arguments = [None if i is None else Argument("v", types[i]) for i in step.inputs]
        if (
            not c_types.is_supported(step.dtype)
            or scalar(step.operator, step.attributes, arguments, step.dtype) is None
        ):
            return False
    return True


class LoopWriter:
    """Collects the statements, constants and helpers of one kernel."""

    def __init__(self, task: Task) -> None:
        self.task = task
        self.lines: list[str] = []
        self.constants: list[np.ndarray] = []
        self.helpers: dict[str, None] = {}
        self._depth = 0
        self._names = 0
        self._inputs: dict[int, LoopOperand] = {}
        self._operands: dict[int, LoopOperand] = {}

    # ---- operands ------------------------------------------------------------------------------------

    def constant(self, array: np.ndarray, dtype: ir.DataType | None = None) -> LoopOperand:
        """A constant array as ``w<k>``, dense."""
        known = dtype if dtype is not None else ir.DataType.from_numpy(array.dtype)
        self.constants.append(array)
        return LoopOperand(f"w{len(self.constants) - 1}", known, array.shape, dense_strides(array.shape))

    def input(self, index: int) -> LoopOperand | None:
        """Input of the anchor, a view or a constant; None if absent."""
        task = self.task
        if index not in self._inputs:
            found = task.inputs[index] if index < len(task.inputs) else None
            if found is None:
                return None
            if isinstance(found, View):
                self._inputs[index] = LoopOperand(f"x{index}", found.dtype, found.shape, found.strides)
            else:
                self._inputs[index] = self.constant(found)
        return self._inputs[index]

    def required(self, index: int) -> LoopOperand:
        """Input that cannot be absent."""
        found = self.input(index)
        assert found is not None
        return found

    def _operand(self, index: int) -> LoopOperand:
        if index not in self._operands:
            found, shape = self.task.epilogue.operands[index], self.task.output.shape
            if isinstance(found, View):
                self._operands[index] = LoopOperand(f"e{index}", found.dtype, found.shape, found.strides)
            else:
                constant = self.constant(found)
                strides = broadcast_strides(constant.shape, constant.strides, shape)
                self._operands[index] = LoopOperand(constant.name, constant.dtype, shape, strides)
        return self._operands[index]

    # ---- statements ----------------------------------------------------------------------------------

    def add(self, *lines: str) -> None:
        """Append statements, indented."""
        for line in lines:
            for part in line.splitlines():
                self.lines.append("    " * self._depth + part if part.strip() else "")

    def name(self, prefix: str = "t") -> str:
        """A variable's name that was not used yet."""
        self._names += 1
        return f"{prefix}{self._names}"

    def need(self, helpers: Sequence[str]) -> None:
        """Declarations at file scope."""
        self.helpers.update(dict.fromkeys(helpers))

    @contextmanager
    def block(self, head: str = "") -> Iterator[None]:
        """``head { ... }``."""
        self.add(f"{head} {{" if head else "{")
        self._depth += 1
        yield
        self._depth -= 1
        self.add("}")

    @contextmanager
    def loops(
        self, prefix: str, shape: Shape, order: Sequence[int] | None = None, *, parallel: bool = False
    ) -> Iterator[list[str]]:
        """Loops over all indices of a shape, outermost first; gives an index expression for each axis.

        Args:
            prefix: Of the variables: ``i0``, ``i1``, ...
            shape: Bounds. Axes of one element get no loop, their index is ``"0"``.
            order: Of the loops; rows by default.
            parallel: Whether their iterations are independent; see :mod:`eqsat.codegen.parallel`.
        """
        index = ["0" if n == 1 else f"{prefix}{axis}" for axis, n in enumerate(shape)]
        looped = [axis for axis in (order if order is not None else range(len(shape))) if shape[axis] != 1]
        if parallel and looped:
            self.add(MARK)
        for axis in looped:
            i = index[axis]
            self.add(f"for (ptrdiff_t {i} = 0; {i} < {shape[axis]}; {i}++) {{")
            self._depth += 1
        yield index
        for _ in looped:
            self._depth -= 1
            self.add("}")

    def memory_order(self, view: View) -> list[int]:
        """Axes by falling stride: the order of loops that walks through a view's memory."""
        return sorted(range(view.rank), key=lambda a: (-magnitude(view.strides[a]), a))

    # ---- elements ------------------------------------------------------------------------------------

    def load(self, operand: LoopOperand, index: Indices) -> str:
        """An element in the type that it is computed in."""
        return self.load_at(operand, offset(operand.strides, index))

    def load_at(self, operand: LoopOperand, at: str) -> str:
        """As ``load``, by the distance from element [0, ..., 0]."""
        text = f"{operand.name}[{at}]"
        if operand.dtype.bitwidth < 8:
            # numpy leaves the upper bits of a byte undefined.
            mask, sign = (1 << operand.dtype.bitwidth) - 1, 1 << (operand.dtype.bitwidth - 1)
            return f"((({text} & {mask}) ^ {sign}) - {sign})" if operand.dtype.is_signed() else f"({text} & {mask})"
        kind = c_types.converted(operand.dtype)
        if kind is None:
            return text
        self.need(small_floats.to_float(operand.dtype))
        return f"{kind}_to_float({text})"

    def rounded(self, value: str, dtype: ir.DataType) -> str:
        """A computed value after a round trip through its storage type."""
        kind = c_types.converted(dtype)
        if kind is None or re.fullmatch(rf"{kind}_to_float\(\w+\[[^][]*\]\)", value):
            return value  # an element of memory is rounded
        self.need((*small_floats.to_float(dtype), *small_floats.from_float(dtype)))
        return f"{kind}_to_float(float_to_{kind}({value}))"

    def store(self, value: str, index: Indices) -> None:
        """Apply the epilogue to a computed element and store it in output 0."""
        epilogue, y = self.task.epilogue, self.task.output
        result, dtype = value, epilogue.dtype
        if epilogue.steps:
            first = self.name("v")
            self.add(f"const {c_types.computed(dtype)} {first} = {self.rounded(value, dtype)};")
            result, dtype = self._steps(epilogue, first, index)
        self.store_to(0, result, index, y)

    def store_to(self, output: int, value: str, index: Indices, y: View | None = None) -> None:
        """Store a computed element in an output, without epilogue."""
        view = y if y is not None else self.task.outputs[output]
        assert view is not None
        kind = c_types.converted(view.dtype)
        if kind is not None:
            self.need(small_floats.from_float(view.dtype))
            value = f"float_to_{kind}({value})"
        elif c_types.size(view.dtype) < 4:
            value = f"({c_types.storage(view.dtype)})({value})"
        self.add(f"y{output}[{offset(view.strides, index)}] = {value};")

    def _steps(self, epilogue: Epilogue, first: str, index: Indices) -> tuple[str, ir.DataType]:
        types = epilogue.dtypes()
        operands = len(epilogue.operands)
        names: dict[int, str] = {0: first}
        for number, step in enumerate(epilogue.steps, start=1 + operands):
            for i in step.inputs:
                if i is not None and i not in names:
                    operand = self._operand(i - 1)
                    names[i] = self.name("v")
                    self.add(f"const {c_types.computed(types[i])} {names[i]} = {self.load(operand, index)};")
            names[number] = self.name("v")
            text = self._apply(step, names, types)
            if number < len(types) - 1:  # the store rounds the last one
                text = self.rounded(text, step.dtype)
            self.add(f"const {c_types.computed(step.dtype)} {names[number]} = {text};")
        last = len(types) - 1
        return names[last], types[last]

    def _apply(self, step: Step, names: dict[int, str], types: list[ir.DataType]) -> str:
        arguments = [None if i is None else Argument(names[i], types[i]) for i in step.inputs]
        found = scalar(step.operator, step.attributes, arguments, step.dtype)
        assert found is not None, step.operator
        self.need(found.helpers)
        text = found.text
        c = c_types.computed(step.dtype)
        return f"({c})({text})" if c not in ("float", "double") and c_types.size(step.dtype) < 4 else text

    # ---- the result ----------------------------------------------------------------------------------

    def kernel(self, *, scratch: int = 0, specialised: bool = True, contract: bool = False) -> GeneratedKernel:
        """The kernel as written; see :class:`~eqsat.codegen.kernel.GeneratedKernel` for the arguments."""
        return GeneratedKernel(
            "\n".join(self.lines), tuple(self.constants), scratch, tuple(self.helpers), specialised, contract
        )
