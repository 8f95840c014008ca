"""Operators along one axis: cumulative sums, arg-reductions, softmax and similar ones, the largest elements.

Mirrors the second half of ``eqsat/ops/families/reductions.py`` and ``top_k`` of ``gathering.py``.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.elementwise_spelling import spelled
from eqsat.codegen.expressions.basic import arithmetic
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateResult, TemplateTensor
from eqsat.codegen.kernels.loops.family import NUMBERS, are, ints, loops, shape_of
from eqsat.codegen.kernels.loops.reductions import place_in
from eqsat.codegen.program import ProgramNode, ProgramTensor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import any_free, greatest, is_free
from eqsat.schema.types import OpKey

_WIDE = 16
"""Accumulators of a line whose elements adjoin."""


def lines(shape: Sequence[int], axis: int) -> tuple[int, ...]:
    """Bounds of the loops over all axes but one."""
    return tuple(1 if a == axis else n for a, n in enumerate(shape))


def _axis(task: Task) -> int:
    return int(task.attributes["axis"]) % max(len(shape_of(task, 0)), 1)


@loops(
    "cumulative loops",
    "CumSum",
    "CumProd",
    accepts=lambda task: are(task, NUMBERS, 0) and task.constant(1) is not None,
)
def cumulative(task: Task) -> GeneratedKernel:
    """Running sums and products, from the left or the right, with or without the element itself."""
    template = Template(task)
    shape = shape_of(task, 0)
    axes = ints(task.constant(1))
    assert axes is not None
    axis = axes[0] % len(shape)
    beside, together = _together(template.result(), axis)
    product = task.operator.name == "CumProd"
    dtype = template.task.epilogue.dtype
    return template.fill(
        "loops/cumulative.c.jinja",
        axis=axis,
        beside=beside,
        together=together,
        others=tuple(1 if a in (axis, beside) else n for a, n in enumerate(shape)),
        unit="1" if product else "0",
        combine=lambda total: arithmetic("*" if product else "+", total, "value", dtype),
        reverse=bool(task.attributes["reverse"]),
        exclusive=bool(task.attributes["exclusive"]),
        specialised=True,
    )


_ALONG, _ACROSS = 1024, 4
"""Lines that are summed together: neighbours in memory, in vectors; others, as each waits for its own last sum."""


def _together(y: TemplateResult, axis: int) -> tuple[int | None, int]:
    """The axis whose lines are summed together (None if there is one line), and the number of lines at once."""
    order = [a for a in y.order if y.shape[a] != 1 or a == axis]
    others = [a for a in order if a != axis]
    if not others:
        return None, 1
    most = _ACROSS if order[-1] == axis else _ALONG
    count = y.shape[others[-1]]
    return others[-1], most if any_free((count,)) else min(count, most)


@loops("arg-reducing loops", "ArgMax", "ArgMin", accepts=lambda task: are(task, NUMBERS, 0))
def arg_reduce(task: Task) -> GeneratedKernel:
    """Position of the largest or smallest element; the first of equals unless the last is requested."""
    template = Template(task)
    x, y = template.operand(0), template.result()
    axis, largest, real = _axis(task), task.operator.name == "ArgMax", x.dtype in FLOATS
    better, size = ">" if largest else "<", x.shape[axis]
    wide = 1 if is_free(size) or size < 2 * _WIDE or x.operand.strides[axis] != 1 else _WIDE

    def extreme(a: str, b: str) -> str:
        return f"{'maximum' if largest else 'minimum'}_{x.c}({a}, {b})" if real else f"{a} {better} {b} ? {a} : {b}"

    return template.fill(
        "loops/scans.c.jinja",
        kind="extreme",
        axis=axis,
        lines=lines(x.shape, axis),
        c=x.c,
        real=real,
        better=better,
        extreme=extreme,
        wide=wide,
        specialised=wide > 1,
        backwards=bool(task.attributes.get("select_last_index")),
        last=x.shape[axis] - 1,
        place=place_in([axis], x.rank, y.rank),
    )


def _real(task: Task) -> bool:
    return are(task, FLOATS, 0)


@loops("softmax loops", "Softmax", "LogSoftmax", accepts=_real)
def softmax(task: Task) -> GeneratedKernel:
    """Exponentials of the distance to the largest element, by their sum."""
    template = Template(task)
    x = template.operand(0)
    axis = _axis(task)
    return template.fill(
        "loops/scans.c.jinja",
        scratch=8 * x.shape[axis] if x.c == "double" else 0,
        specialised=x.c == "double",
        kind=task.operator.name,
        axis=axis,
        lines=lines(x.shape, axis),
        c=x.c,
        wide=_WIDE,
    )


@spelled("Hardmax")
def _hardmax(node: ProgramNode) -> list[ProgramNode] | None:
    """The class of each line, then its vector, as both have kernels of their own."""
    x, y = node.inputs[0], node.output
    if not isinstance(x, ProgramTensor) or any_free(x.shape) or 0 in x.shape:
        return None
    axis = node.attributes["axis"] % len(x.shape)
    lines = tuple(n for a, n in enumerate(x.shape) if a != axis)
    place = ProgramTensor(f"{y.name}_place", ir.DataType.INT64, lines)
    found = {"axis": axis, "keepdims": 0, "select_last_index": 0}
    values = np.array([0, 1], y.dtype.numpy())
    return [
        ProgramNode(f"{node.name}_place", OpKey("", "ArgMax"), found, [x], [place], x.dtype),
        ProgramNode(
            node.name, OpKey("", "OneHot"), {"axis": axis}, [place, np.array(x.shape[axis]), values], [y], y.dtype
        ),
    ]


@loops("hardmax loops", "Hardmax", accepts=_real)
def hardmax(task: Task) -> GeneratedKernel:
    """1 at the first largest element, else 0."""
    axis = _axis(task)
    return Template(task).fill("loops/hardmax.c.jinja", axis=axis, lines=lines(shape_of(task, 0), axis))


@loops("largest elements", "TopK", accepts=lambda task: are(task, NUMBERS, 0), epilogue=False)
def top_k(task: Task) -> GeneratedKernel:
    """The first places of a stable order; NaN comes last either way."""
    template = Template(task)
    x = template.operand(0)
    y = next(v for v in template.y if v is not None)
    axis = _axis(task)
    count, size = y.shape[axis], x.shape[axis]
    wide = 1 if any_free((size, count)) or size < count + _WIDE or x.operand.strides[axis] != 1 else _WIDE
    largest = bool(task.attributes.get("largest", 1))
    symbol = ">" if largest else "<"
    keyed = ("float" if x.c == "float" else "signed" if x.dtype.is_signed() else "unsigned") if _is_narrow(x) else ""

    def before(a: str, b: str) -> str:
        numbers = f"{a} {symbol} {b}"
        return f"({numbers} || ({a} == {a} && {b} != {b}))" if x.dtype in FLOATS else f"({numbers})"

    filled = f"({size}) < ({count}) ? ({size}) : ({count})" if any_free((count, size)) else count
    return template.fill(
        "loops/top_k.c.jinja",
        axis=axis,
        lines=lines(x.shape, axis),
        count=count,
        wide=wide,
        specialised=wide > 1,
        filled=filled,
        taken="filled" if any_free((count, size)) else count,
        before=before,
        largest=largest,
        keyed=keyed,
        no_better=f"{'<' if largest else '>'}=",
        c=x.c,
        scratch=(8 if keyed else 16) * (count or 1),
    )


def _is_narrow(x: TemplateTensor) -> bool:
    """Whether an element and a place along an axis are a number of 64 bits together."""
    return (x.c == "float" or (x.dtype in INTEGERS and x.dtype.bitwidth <= 32)) and all(
        greatest(n) < 2**31 for n in x.shape
    )
