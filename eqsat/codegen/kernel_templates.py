"""Fills the C templates of kernels: operands, loops and stores as objects that a template calls.

A template sees ``x`` (its inputs by number, None where absent), ``y`` (its outputs) and ``loops``::

    {% call(i) loops('i', y[0].shape) %}              for (ptrdiff_t i0 = 0; ...) and so on; i is the tuple of indices
    {{ y[0].store('-' ~ x[0].load(*i), *i) }}         the epilogue, then the store
    {% endcall %}

Indices are C expressions or numbers, one for each axis; strides are multiplied in here, so that no template knows how
its operands lie. Templates need not indent what they write.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.c_functions import needed
from eqsat.codegen.expressions.casting import conversion
from eqsat.codegen.kernel import GeneratedKernel, Task, View, dense_strides
from eqsat.codegen.kernel_text import render
from eqsat.codegen.loop_writer import LoopOperand, LoopWriter, broadcast_strides, offset
from eqsat.codegen.parallel import MARK
from eqsat.schema.size_questions import magnitude
from eqsat.schema.types import Shape

IndexText = str | int


def indices(index: Sequence[IndexText]) -> list[str]:
    """Indices as C text."""
    return [str(i) for i in index]


class TemplateTensor:
    """An operand as templates see it.

    Attributes:
        shape: Dimensions.
        dtype: Element type.
        c: C type that an element is computed in.
    """

    def __init__(self, writer: LoopWriter, operand: LoopOperand) -> None:
        self._writer = writer
        self.operand = operand
        self.shape = operand.shape
        self.dtype = operand.dtype
        self.c = c_types.computed(operand.dtype)

    @property
    def rank(self) -> int:
        return len(self.shape)

    @property
    def size(self) -> int:
        return math.prod(self.shape)

    def at(self, *index: IndexText) -> str:
        """The element in memory."""
        return f"{self.operand.name}[{offset(self.operand.strides, indices(index))}]"

    def load(self, *index: IndexText) -> str:
        """The element in the type that it is computed in."""
        return self._writer.load(self.operand, indices(index))

    def _with(self, shape: Shape, strides: Shape) -> TemplateTensor:
        return TemplateTensor(self._writer, replace(self.operand, shape=shape, strides=strides))

    def transpose(self, perm: Sequence[int]) -> TemplateTensor:
        """The same elements with permuted axes."""
        return self._with(tuple(self.shape[p] for p in perm), tuple(self.operand.strides[p] for p in perm))

    def broadcast(self, shape: Sequence[int]) -> TemplateTensor:
        """The same elements repeated to a shape."""
        return self._with(tuple(shape), broadcast_strides(self.shape, self.operand.strides, tuple(shape)))

    def split(self, axis: int, sizes: Sequence[int]) -> TemplateTensor:
        """The same elements with one axis cut into several, the outermost first."""
        stride = self.operand.strides[axis]
        inner = tuple(stride * s for s in dense_strides(tuple(sizes)))
        shape, strides = self.shape, self.operand.strides
        return self._with((*shape[:axis], *sizes, *shape[axis + 1 :]), (*strides[:axis], *inner, *strides[axis + 1 :]))

    def dense(self, shape: Sequence[int]) -> TemplateTensor:
        """The elements of a dense operand in another shape."""
        return self._with(tuple(shape), dense_strides(tuple(shape)))

    def vector(self, axis: int, rank: int) -> TemplateTensor:
        """An operand of one element: for all indices; of one axis: along ``axis`` of ``rank`` axes."""
        if self.size == 1:
            return self._with((1,) * rank, (0,) * rank)
        strides = [0] * rank
        strides[axis] = self.operand.strides[0]
        shape = [1] * rank
        shape[axis] = self.shape[0]
        return self._with(tuple(shape), tuple(strides))


class TemplateResult(TemplateTensor):
    """An output as templates see it."""

    def __init__(self, template: Template, number: int, view: View) -> None:
        super().__init__(template, LoopOperand(f"y{number}", view.dtype, view.shape, view.strides))
        self._template = template
        self.number = number
        self.value_dtype = template.task.epilogue.dtype if number == 0 else view.dtype
        self.c = c_types.computed(self.value_dtype)

    def store(self, value: str, *index: IndexText) -> str:
        """Statements that store a computed value; in output 0 through the epilogue."""
        return self._template.captured(lambda: self._store(value, indices(index)))

    def copy(self, source: TemplateTensor, index: Sequence[IndexText], place: Sequence[IndexText]) -> str:
        """Statements that copy an element of an operand: bit by bit unless there is an epilogue."""
        if self.number == 0 and self._writer.task.epilogue.steps:
            return self.store(source.load(*index), *place)
        return f"{self.at(*place)} = {source.at(*index)};"

    @property
    def order(self) -> list[int]:
        """Axes by falling stride."""
        strides = self.operand.strides
        return sorted(range(self.rank), key=lambda a: (-magnitude(strides[a]), a))

    def _store(self, value: str, index: list[str]) -> None:
        if self.number:
            self._writer.store_to(self.number, value, index)
        elif self._writer.task.epilogue.steps:
            with self._writer.block():
                self._writer.store(value, index)
        else:
            self._writer.store(value, index)


class Inputs:
    """The inputs of the anchor; a constant becomes a parameter when a template first asks for it."""

    def __init__(self, writer: LoopWriter) -> None:
        self._writer = writer

    def __len__(self) -> int:
        return len(self._writer.task.inputs)

    def __getitem__(self, index: int) -> TemplateTensor | None:
        found = self._writer.input(index)
        return None if found is None else TemplateTensor(self._writer, found)


class Template(LoopWriter):
    """One kernel written by a template."""

    def __init__(self, task: Task) -> None:
        super().__init__(task)
        self.x = Inputs(self)
        self.y = [None if v is None else TemplateResult(self, i, v) for i, v in enumerate(task.outputs)]

    def operand(self, number: int) -> TemplateTensor:
        """Input that cannot be absent."""
        return TemplateTensor(self, self.required(number))

    def operands(self, *numbers: int) -> list[TemplateTensor]:
        """Inputs that cannot be absent, in the order in which constants among them become parameters."""
        return [self.operand(number) for number in numbers]

    def result(self, number: int = 0) -> TemplateResult:
        """Output that has readers."""
        found = self.y[number]
        assert found is not None
        return found

    def captured(self, write: Callable[[], None]) -> str:
        """The lines that a function adds."""
        before, self.lines = self.lines, []
        write()
        text = "\n".join(self.lines)
        self.lines = before
        return text

    def table(self, array: np.ndarray) -> TemplateTensor:
        """A constant array."""
        return TemplateTensor(self, self.constant(array))

    def literal(self, value: Any, dtype: ir.DataType) -> str:
        """A number in the type that ``dtype`` is computed in."""
        return c_types.literal(value, dtype)

    def convert(self, value: str, source: ir.DataType, target: ir.DataType) -> str:
        """A computed value in the type of another element type, as numpy converts."""
        found = conversion(value, source, target)
        assert found is not None, (source, target)
        return found

    def fill(
        self, name: str, *, scratch: int = 0, specialised: bool = False, contract: bool = False, **values: Any
    ) -> GeneratedKernel:
        """The kernel of a template; helpers are found by the names that it calls.

        Args:
            name: Of the template.
            scratch: Bytes of working memory.
            specialised: Whether compilers vectorise its loops; otherwise one text serves all instruction sets.
            contract: Whether products and sums may be fused.
            values: Variables of the template besides ``x``, ``y``, ``t``, ``loops`` and ``along``.
        """
        text = render(name, x=self.x, y=self.y, t=self, loops=_loops, along=along, **values)
        self.lines = indented(text)
        self.need(needed("\n".join(self.lines)))
        return self.kernel(scratch=scratch, specialised=specialised, contract=contract)


def _loops(
    prefix: str,
    shape: Sequence[int],
    order: Sequence[int] | None = None,
    *,
    parallel: bool = False,
    caller: Callable[[tuple[str, ...]], str],
) -> str:
    """Loops over all indices of a shape, in an order of axes, around what a template's call block writes.

    Those that are parallel are independent of each other; see :mod:`eqsat.codegen.parallel`.
    """
    index = tuple("0" if n == 1 else f"{prefix}{axis}" for axis, n in enumerate(shape))
    axes = [a for a in (order if order is not None else range(len(shape))) if shape[a] != 1]
    heads = [f"for (ptrdiff_t {index[a]} = 0; {index[a]} < {shape[a]}; {index[a]}++) {{" for a in axes]
    mark = [MARK] if parallel and heads else []
    # A line break at the end, because marks are only recognised at the beginning of a line.
    return "\n".join([*mark, *(heads or ["{"]), caller(index), "}" * max(len(heads), 1), ""])


def only(operand: TemplateTensor | None) -> str:
    """The element of an operand that has one; 0 where it is absent."""
    return "0" if operand is None else operand.load(*["0"] * operand.rank)


def along(index: Sequence[IndexText], axis: int, place: IndexText) -> tuple[IndexText, ...]:
    """An index with another place on one axis."""
    return (*index[:axis], place, *index[axis + 1 :])


_CLOSING = re.compile(r"[{}]")


def indented(text: str) -> list[str]:
    """Lines indented by the braces around them, without empty ones."""
    lines, depth = [], 0
    for line in (raw.strip() for raw in text.splitlines()):
        if not line:
            continue
        if set(line) == {"}"}:
            for _ in line:
                depth -= 1
                lines.append("    " * depth + "}")
            continue
        lines.append("    " * (depth - line.startswith("}")) + line)
        depth += sum(1 if c == "{" else -1 for c in _CLOSING.findall(line))
    return lines
