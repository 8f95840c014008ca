"""Pooling of any element type in ONNX's layout, where no layout with channels innermost is at hand.

For each row of results, the rows of its windows are joined first, element by element, and then the elements of each
window in the joined row. Both are loops over neighbours, of which compilers make vectors.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import product

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View
from eqsat.codegen.kernel_templates import Template, TemplateTensor
from eqsat.codegen.kernels.loops.family import NUMBERS
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.loop_writer import is_scalar_epilogue
from eqsat.ops.families.pooling import window_counts
from eqsat.ops.windows import Windows, integers, windows
from eqsat.schema.dtypes import FLOATS, limits
from eqsat.schema.size_choices import smallest
from eqsat.schema.size_questions import any_free, greatest
from eqsat.schema.types import OpKey

_LONGEST = 1 << 15
"""Bytes of a row that stays in the first cache while its windows are joined."""
_TOGETHER = 1 << 14
"""Bytes of joined rows that are written before the first of them is read."""
_ELEMENTS, _ROWS = 32, 27
"""Numbers of elements of a window in a row, and of rows of a window, up to which loops are unrolled."""


def _windows(task: Task) -> Windows:
    kernel = integers(task.attributes, "kernel_shape", ())
    return windows(task.attributes, task.view(0).shape[2:], kernel, ceil=bool(task.attributes.get("ceil_mode", 0)))


def _length(at: Windows) -> int:
    """Elements of a joined row, with those in the padding that windows reach."""
    return (at.out[-1] - 1) * at.strides[-1] + at.extent[-1]


def _accepts(task: Task) -> bool:
    x, y = task.inputs[0], task.outputs[0]
    if not isinstance(x, View) or y is None or any(v is not None for v in task.outputs[1:]) or x.rank < 3:
        return False
    means = task.operator.name == "AveragePool"
    if x.dtype not in (FLOATS if means else NUMBERS) or c_types.converted(x.dtype) or 0 in (*x.shape, *y.shape):
        return False
    if means and any_free(x.shape[2:]):
        return False
    if task.attributes.get("channels_last") or not is_scalar_epilogue(task.epilogue):
        return False
    at = _windows(task)
    if min(*at.begin, *at.end) < 0 or at.begin[-1] >= _length(at) or at.kernel[-1] > _ELEMENTS:
        return False
    return math.prod(at.kernel[:-1]) <= _ROWS and _length(at) * c_types.size(x.dtype) <= _LONGEST


def _generate(task: Task) -> GeneratedKernel:
    template = Template(task)
    x, y, at = template.operand(0), template.result(), _windows(task)
    largest, length, first = task.operator.name == "MaxPool", _length(at), at.begin[-1]
    count = None if largest else _count(template, x, at)

    def joined(a: str, b: str) -> str:
        if not largest:
            return f"{a} + {b}"
        return f"maximum_{x.c}({a}, {b})" if x.dtype in FLOATS else f"({a} > {b} ? {a} : {b})"

    def put(value: str, b: Sequence[str], o: Sequence[str], i: str) -> str:
        outer = [*o, "(z + r)"] if len(at.out) > 1 else []
        return y.store(value if count is None else f"{value} / {count(outer, i)}", *b, *outer, i)

    each = greatest(length) * c_types.size(x.dtype)
    block = min(max(_TOGETHER // each, 1), greatest(at.out[-2])) if len(at.out) > 1 else 1
    return template.fill(
        "loops/row_pool.c.jinja",
        specialised=True,
        scratch=block * each,
        block=block,
        source=x,
        at=at,
        start=c_types.literal(_least(x.dtype) if largest else 0, x.dtype),
        joined=joined,
        element=lambda b, outer: x.load(*b, *outer, "w"),
        put=put,
        first=first,
        columns=smallest(x.shape[-1], length - first),
        length=length,
        taps=list(product(*map(range, at.kernel[:-1]))),
        within=lambda tap: [f"s{a} + {t * d}" for a, (t, d) in enumerate(zip(tap, at.dilations, strict=False))],
        places=[f"p{a}" for a in range(len(at.kernel) - 1)],
        outer=at.out[:-1],
    )


def _least(dtype: ir.DataType) -> float:
    """The least value of an element type."""
    return -math.inf if dtype in FLOATS else int(limits(dtype)[0])


def _count(template: Template, x: TemplateTensor, at: Windows) -> Callable[[Sequence[str], str], str]:
    """C text of the number of elements of a window."""
    counts = window_counts(at, x.shape[2:], bool(template.task.attributes.get("count_include_pad", 0)))
    if (counts == counts.flat[0]).all():
        return lambda o, i: c_types.literal(int(counts.flat[0]), x.dtype)
    table = template.table(counts.astype(x.dtype.numpy()))
    return lambda o, i: table.load(*o, i)


for _name in ("MaxPool", "AveragePool"):
    register(Family("pooling of rows", (OpKey("", _name),), _accepts, lambda task, isa: _generate(task), rank=5))
