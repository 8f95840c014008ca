"""Einstein summation; mirrors ``einsum`` of ``eqsat/ops/families/matmul.py``.

A sum over products of two operands is a matrix product between transpositions, and those are views where memory allows
it. More operands are taken two by two, the cheapest pair first: one nest of loops over all labels would repeat the
products of the inner pairs for each label outside of them. Nested loops compute the other ones.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import combinations
from string import ascii_letters
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.elementwise_spelling import as_chain, spelled
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import NUMBERS, are, loops, shape_of
from eqsat.codegen.kernels.loops.products import accumulator_of
from eqsat.codegen.program import RESHAPE, ProgramNode, ProgramOperand, ProgramTensor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import any_free, is_free
from eqsat.schema.types import OpKey

AxisLabels = tuple[str, ...]
LabelledOperand = tuple[ProgramOperand, AxisLabels]
"""An operand and the labels of its axes."""
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
def einsum(task: Task) -> GeneratedKernel:
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
def _in_pairs(node: ProgramNode) -> list[ProgramNode] | None:
    """Sums, matrix products and transpositions; None for repeated labels, other types and free sizes."""
    operands = [x for x in node.inputs if x is not None]
    shapes = [x.shape for x in operands]
    if node.dtype not in _REAL or any(any_free(s) or 0 in s for s in shapes):
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
    if all(isinstance(x, np.ndarray) for x in operands):
        return None
    return _Writer(node, found.sizes).written(list(zip(operands, found.operands, strict=True)), found.result)


class _Writer:
    """Makes the nodes of one equation.

    Attributes:
        node: The equation.
        sizes: Length of each label.
        nodes: Those made so far.
    """

    def __init__(self, node: ProgramNode, sizes: Mapping[str, int]) -> None:
        self.node, self.sizes, self.nodes = node, sizes, list[ProgramNode]()
        self._tensors = 0

    def written(self, terms: list[LabelledOperand], result: AxisLabels) -> list[ProgramNode]:
        """All nodes; the last one computes the result."""
        y = self.node.output
        if len(terms) == 1:
            (term,) = terms
            kept = tuple(label for label in term[1] if label in result)
            x, labels = self._summed(term, kept, y if kept == result else None)
            return self._transposition(x, labels, result) if x is not y else self.nodes
        terms = [
            self._summed(term, tuple(k for k in term[1] if k in result or _in_others(k, terms, (i,))))
            for i, term in enumerate(terms)
        ]
        while len(terms) > 2:
            i, j = min(combinations(range(len(terms)), 2), key=lambda pair: self._cost(terms, pair, result))
            kept = tuple(
                label
                for label in dict.fromkeys((*terms[i][1], *terms[j][1]))
                if label in result or _in_others(label, terms, (i, j))
            )
            both = self._both(terms[i], terms[j], kept)
            terms = [*(term for k, term in enumerate(terms) if k not in (i, j)), (both, kept)]
        self._pair(terms[0], terms[1], result, y)
        return self.nodes

    def _cost(
        self, terms: Sequence[LabelledOperand], pair: tuple[int, int], result: AxisLabels
    ) -> tuple[int, tuple[int, int]]:
        """Products of a pair, and its place, so that the choice among equals is always the same."""
        (a, of_a), (b, of_b) = (terms[k] for k in pair)
        both = (*of_a, *(label for label in of_b if label not in of_a))
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            kept = tuple(label for label in both if label in result or _in_others(label, terms, pair))
            if self._length(kept) <= a.size + b.size:
                return 0, pair
        return self._length(both), pair

    def _both(self, left: LabelledOperand, right: LabelledOperand, kept: AxisLabels) -> ProgramOperand:
        """The sum of products of two operands; a constant if both are constant."""
        (a, of_a), (b, of_b) = left, right
        if isinstance(a, np.ndarray) and isinstance(b, np.ndarray):
            letters = dict(zip(dict.fromkeys((*of_a, *of_b)), ascii_letters, strict=False))
            left_text, right_text, made_text = ("".join(letters[k] for k in labels) for labels in (of_a, of_b, kept))
            text = f"{left_text},{right_text}->{made_text}"
            made = np.einsum(text, a.astype(np.float64), b.astype(np.float64))
            return np.asarray(made, a.dtype)
        y = self._tensor(tuple(self.sizes[label] for label in kept))
        self._pair(left, right, kept, y)
        return y

    def _summed(self, term: LabelledOperand, kept: AxisLabels, y: ProgramTensor | None = None) -> LabelledOperand:
        """An operand summed over the labels that occur nowhere else."""
        x, labels = term
        axes = tuple(axis for axis, label in enumerate(labels) if label not in kept)
        if not axes:
            return term
        if isinstance(x, np.ndarray):
            return np.asarray(x.astype(np.float64).sum(axes), x.dtype), kept
        y = self._tensor(tuple(self.sizes[label] for label in kept)) if y is None else y
        attributes = {"keepdims": 0, "noop_with_empty_axes": 0}
        self._add("ReduceSum", attributes, [x, np.array(axes, np.int64)], y)
        return y, kept

    def _transposition(self, x: ProgramOperand, labels: AxisLabels, result: AxisLabels) -> list[ProgramNode]:
        """The operand with its axes in another order."""
        self._add("Transpose", {"perm": _order(labels, result)}, [x], self.node.output)
        return self.nodes

    def _pair(self, one: LabelledOperand, other: LabelledOperand, result: AxisLabels, y: ProgramTensor) -> None:
        """A matrix product, or a product element by element where no label is summed."""
        if any(label in other[1] and label not in result for label in one[1]):
            self._product([one[0], other[0]], one[1], other[1], result, y)
            return
        factors = []
        for x, labels in (one, other):
            order = tuple(label for label in result if label in labels)
            shape = tuple(self.sizes[label] if label in labels else 1 for label in result)
            factors.append(self._ordered(x, labels, order, shape))
        node = ProgramNode(self.node.name, OpKey("", "Mul"), {}, factors, [y], y.dtype)
        chain = as_chain(node)
        assert chain is not None
        self.nodes.append(chain)

    def _product(
        self,
        operands: Sequence[ProgramOperand],
        left: AxisLabels,
        right: AxisLabels,
        result: AxisLabels,
        y: ProgramTensor,
    ) -> None:
        """``[batch, rows, summed] x [batch, summed, columns]``, then the order of the result."""
        batch = tuple(label for label in result if label in left and label in right)
        summed = tuple(label for label in left if label in right and label not in result)
        own = [tuple(label for label in result if label in side and label not in batch) for side in (left, right)]
        # Products come out in the order of the result if rows are the operand that it begins with.
        if next((label for label in result if label not in batch), None) in own[1]:
            operands, left, right, own = operands[::-1], right, left, own[::-1]
        # Without a batch, rows may have several axes.
        leading, rows = (batch, own[0]) if batch or not own[0] else (own[0][:-1], own[0][-1:])
        a = self._matrix(operands[0], left, (leading, rows, summed))
        b = self._matrix(operands[1], right, (batch, summed, own[1]))
        ordered = (*batch, *own[0], *own[1])
        shape = (*(self.sizes[k] for k in leading), self._length(rows), self._length(own[1]))
        last = y if shape == y.shape and ordered == result else self._tensor(shape)
        self._add("MatMul", {}, [a, b], last)
        if ordered != result:
            full = self._reshaped(last, tuple(self.sizes[k] for k in ordered))
            self._add("Transpose", {"perm": _order(ordered, result)}, [full], y)
        elif last is not y:
            self.nodes.append(ProgramNode(self.node.name, RESHAPE, {}, [last], [y], y.dtype))

    def _matrix(
        self, x: ProgramOperand, labels: AxisLabels, parts: tuple[AxisLabels, AxisLabels, AxisLabels]
    ) -> ProgramOperand:
        """An operand with its batch axes first, and one axis for each of the other parts."""
        batch, rows, columns = parts
        shape = (*(self.sizes[k] for k in batch), self._length(rows), self._length(columns))
        return self._ordered(x, labels, (*batch, *rows, *columns), shape)

    def _ordered(
        self, x: ProgramOperand, labels: AxisLabels, order: AxisLabels, shape: tuple[int, ...]
    ) -> ProgramOperand:
        """An operand with its axes in another order, in another shape of the same elements."""
        if isinstance(x, np.ndarray):
            return np.ascontiguousarray(x.transpose(_order(labels, order))).reshape(shape)
        if order != labels:
            moved = self._tensor(tuple(self.sizes[k] for k in order))
            self._add("Transpose", {"perm": _order(labels, order)}, [x], moved)
            x = moved
        return self._reshaped(x, shape)

    def _reshaped(self, x: ProgramTensor, shape: tuple[int, ...]) -> ProgramTensor:
        if x.shape == shape:
            return x
        y = self._tensor(shape)
        self.nodes.append(ProgramNode(self.node.name, RESHAPE, {}, [x], [y], y.dtype))
        return y

    def _length(self, labels: AxisLabels) -> int:
        return math.prod(self.sizes[k] for k in labels)

    def _tensor(self, shape: tuple[int, ...]) -> ProgramTensor:
        self._tensors += 1
        return ProgramTensor(f"{self.node.output.name}_{self._tensors}", self.node.dtype, shape)

    def _add(
        self, operator: str, attributes: Mapping[str, Any], inputs: Sequence[ProgramOperand], y: ProgramTensor
    ) -> None:
        self.nodes.append(ProgramNode(self.node.name, OpKey("", operator), attributes, [*inputs], [y], y.dtype))


def _in_others(label: str, terms: Sequence[LabelledOperand], but: tuple[int, ...]) -> bool:
    return any(label in labels for k, (_, labels) in enumerate(terms) if k not in but)


def _order(labels: AxisLabels, wanted: AxisLabels) -> tuple[int, ...]:
    return tuple(labels.index(label) for label in wanted)
