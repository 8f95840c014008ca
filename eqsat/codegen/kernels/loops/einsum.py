"""Einstein summation as nested loops; mirrors ``einsum`` of ``eqsat/ops/families/matmul.py``."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from eqsat.codegen.expressions.forms import FLOATS
from eqsat.codegen.kernel import Kernel, Task
from eqsat.codegen.kernels.loops.family import NUMBERS, are, loops, shape_of
from eqsat.codegen.kernels.loops.products import accumulator_of
from eqsat.codegen.templates import Template
from eqsat.schema.size_questions import is_free


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
