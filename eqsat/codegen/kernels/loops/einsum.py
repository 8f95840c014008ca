"""Einstein summation; mirrors ``einsum`` of ``eqsat/ops/families/matmul.py``.

A sum over products of two operands is a matrix product between transpositions, and those are views where memory allows
it. Nested loops compute the other ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.expressions.forms import FLOATS
from eqsat.codegen.kernel import Kernel, Task
from eqsat.codegen.kernels.loops.family import NUMBERS, are, loops, shape_of
from eqsat.codegen.kernels.loops.products import accumulator_of
from eqsat.codegen.program import RESHAPE, Node, Operand, Tensor
from eqsat.codegen.spelling import spelled
from eqsat.codegen.templates import Template
from eqsat.schema.size_questions import any_free, is_free
from eqsat.schema.types import OpKey

Labels = tuple[str, ...]
_REAL = (ir.DataType.FLOAT, ir.DataType.DOUBLE)


@dataclass(frozen=True, slots=True)
class Equation:
    """An equation of ``Einsum`` whose ellipses are written out as upper-case digits' places.

    Attributes:
        operands: Labels of each operand's axes.
        result: Labels of the result's axes.
        sizes: Length of each label.
    """

    operands: tuple[tuple[str, ...], ...]
    result: tuple[str, ...]
    sizes: dict[str, int]


def equation(text: str, shapes: Sequence[tuple[int, ...]]) -> Equation | None:
    """Parse an equation; None if it does not fit the operands."""
    left, arrow, right = text.replace(" ", "").partition("->")
    terms = left.split(",")
    if len(terms) != len(shapes):
        return None
    hidden = 0
    for term, shape in zip(terms, shapes, strict=True):
        if "..." in term:
            hidden = max(hidden, len(shape) - len(term.replace("...", "")))
    operands: list[tuple[str, ...]] = []
    sizes: dict[str, int] = {}
    for term, shape in zip(terms, shapes, strict=True):
        many = len(shape) - len(term.replace("...", ""))
        if many < 0 or (many and "..." not in term):
            return None
        before, _, after = term.partition("...")
        labels = (*before, *(f"...{hidden - many + k}" for k in range(many)), *after)
        for label, n in zip(labels, shape, strict=True):
            known = sizes.get(label, 1)
            sizes[label] = known if n == 1 and is_free(known) else n if is_free(n) else max(known, n) if n else 0
        operands.append(labels)
    dots = tuple(f"...{k}" for k in range(hidden))
    if arrow:
        before, found, after = right.partition("...")
        result = (*before, *(dots if found else ()), *after)
    else:
        every = [label for labels in operands for label in labels]
        result = (*dots, *sorted(label for label in set(every) if every.count(label) == 1 and label not in dots))
    return Equation(tuple(operands), result, sizes) if all(label in sizes for label in result) else None


def _equation(task: Task) -> Equation | None:
    return equation(str(task.attributes["equation"]), [shape_of(task, i) for i in range(len(task.inputs))])


@loops("Einstein summation", "Einsum", accepts=lambda task: are(task, NUMBERS) and _equation(task) is not None)
def einsum(task: Task) -> Kernel:
    """Sums of products over the labels that the result has not got."""
    template = Template(task)
    y = template.result()
    found = _equation(task)
    assert found is not None
    summed = sorted(found.sizes.keys() - set(found.result))
    dtype = y.value_dtype
    accumulator = "double" if dtype in FLOATS else accumulator_of(dtype)
    operands = []
    for number in range(len(task.inputs)):
        x = template.operand(number)
        operands.append(x)

    def term(i: Sequence[str], j: Sequence[str]) -> str:
        at = dict(zip(found.result, i, strict=True)) | dict(zip(summed, j, strict=True))
        factors = []
        for x, labels in zip(operands, found.operands, strict=True):
            index = ["0" if n == 1 else at[label] for label, n in zip(labels, x.shape, strict=True)]
            factors.append(f"({accumulator}){x.load(*index)}")
        return " * ".join(factors)

    return template.fill(
        "loops/einsum.c.jinja",
        kept=y.shape,
        summed=[found.sizes[label] for label in summed],
        accumulator=accumulator,
        product=term,
        finish=f"({y.c})total",
    )


@spelled("Einsum")
def _as_product(node: Node) -> list[Node] | None:
    """A matrix product of transposed operands, or a transposition; None for other equations, types and free sizes."""
    operands = [x for x in node.inputs if x is not None]
    shapes = [x.shape for x in operands]
    if len(operands) > 2 or node.dtype not in _REAL or any(any_free(s) or 0 in s for s in shapes):
        return None
    found = equation(str(node.attributes["equation"]), shapes)
    if found is None or any(len(set(labels)) != len(labels) for labels in (*found.operands, found.result)):
        return None
    if any(
        found.sizes[label] != n
        for labels, s in zip(found.operands, shapes, strict=True)
        for label, n in zip(labels, s, strict=True)
    ):
        return None  # an axis of one element is repeated
    writer = _Writer(node, found.sizes)
    if len(operands) == 1:
        (labels,) = found.operands
        return writer.transposition(operands[0], labels, found.result) if set(labels) == set(found.result) else None
    return writer.product(operands, found)


class _Writer:
    """Makes the nodes of one equation."""

    def __init__(self, node: Node, sizes: Mapping[str, int]) -> None:
        self.node, self.sizes, self.nodes = node, sizes, list[Node]()

    def transposition(self, x: Operand, labels: Labels, result: Labels) -> list[Node] | None:
        """The operand with its axes in another order."""
        if isinstance(x, np.ndarray):
            return None
        self._add("Transpose", {"perm": _order(labels, result)}, [x], self.node.output)
        return self.nodes

    def product(self, operands: Sequence[Operand], found: Equation) -> list[Node] | None:
        """``[batch, rows, summed] x [batch, summed, columns]``, then the order of the result."""
        left, right = found.operands
        result = found.result
        batch = tuple(label for label in result if label in left and label in right)
        summed = tuple(label for label in left if label in right and label not in result)
        own = [tuple(label for label in result if label in side and label not in batch) for side in (left, right)]
        if not summed or {*batch, *summed, *own[0], *own[1]} != {*left, *right}:
            return None
        # Products come out in the order of the result if rows are the operand that it begins with.
        if next((label for label in result if label not in batch), None) in own[1]:
            operands, left, right, own = operands[::-1], right, left, own[::-1]
        # Without a batch, rows may have several axes.
        leading, rows = (batch, own[0]) if batch or not own[0] else (own[0][:-1], own[0][-1:])
        a = self._matrix(operands[0], left, (leading, rows, summed))
        b = self._matrix(operands[1], right, (batch, summed, own[1]))
        ordered = (*batch, *own[0], *own[1])
        y = self.node.output
        shape = (*(self.sizes[k] for k in leading), self._length(rows), self._length(own[1]))
        last = y if shape == y.shape and ordered == result else self._tensor(shape)
        self._add("MatMul", {}, [a, b], last)
        if ordered != result:
            full = self._reshaped(last, tuple(self.sizes[k] for k in ordered))
            self._add("Transpose", {"perm": _order(ordered, result)}, [full], y)
        elif last is not y:
            self.nodes.append(Node(self.node.name, RESHAPE, {}, [last], [y], y.dtype))
        return self.nodes

    def _matrix(self, x: Operand, labels: Labels, parts: tuple[Labels, Labels, Labels]) -> Operand:
        """An operand with its batch axes first, and one axis for each of the other parts."""
        batch, rows, columns = parts
        order = (*batch, *rows, *columns)
        shape = (*(self.sizes[k] for k in batch), self._length(rows), self._length(columns))
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x.transpose(_order(labels, order))).reshape(shape)
        if order != labels:
            moved = self._tensor(tuple(self.sizes[k] for k in order))
            self._add("Transpose", {"perm": _order(labels, order)}, [x], moved)
            x = moved
        return self._reshaped(x, shape)

    def _reshaped(self, x: Tensor, shape: tuple[int, ...]) -> Tensor:
        if x.shape == shape:
            return x
        y = self._tensor(shape)
        self.nodes.append(Node(self.node.name, RESHAPE, {}, [x], [y], y.dtype))
        return y

    def _length(self, labels: Labels) -> int:
        return math.prod(self.sizes[k] for k in labels)

    def _tensor(self, shape: tuple[int, ...]) -> Tensor:
        return Tensor(f"{self.node.output.name}_{len(self.nodes)}", self.node.dtype, shape)

    def _add(self, operator: str, attributes: Mapping[str, Any], inputs: Sequence[Operand], y: Tensor) -> None:
        self.nodes.append(Node(self.node.name, OpKey("", operator), attributes, [*inputs], [y], y.dtype))


def _order(labels: Labels, wanted: Labels) -> tuple[int, ...]:
    return tuple(labels.index(label) for label in wanted)
