"""Reductions over axes; mirrors the first half of ``eqsat/ops/families/reductions.py``.

Integers wrap around. Sums of floats are kept in double and rounded once; their difference from numpy's pairwise sums is
the error of the latter.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS, UNSIGNED
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import NUMBERS, are, ints, loops, shape_of
from eqsat.schema.dimension import as_divisor
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import is_free

_DOUBLE = ir.DataType.DOUBLE


@dataclass(frozen=True, slots=True)
class Reduction:
    """The steps of a reduction, for one kind of element types; forms with the gaps of :func:`_form`.

    Attributes:
        start: The accumulator before the first element.
        step: The accumulator after ``value``.
        finish: The result.
        wide: Whether the accumulator is a double.
    """

    start: str
    step: str
    finish: str = "total"
    wide: bool = True


_REAL = {
    "ReduceSum": Reduction("0", "total + value"),
    "ReduceMean": Reduction("0", "total + value", "total / {count}"),
    "ReduceMax": Reduction("-INFINITY", "maximum_{c}(total, value)", wide=False),
    "ReduceMin": Reduction("INFINITY", "minimum_{c}(total, value)", wide=False),
    "ReduceProd": Reduction("1", "total * value", wide=False),
    "ReduceL1": Reduction("0", "total + fabs{f}(value)"),
    "ReduceL2": Reduction("0", "total + (double)value * value", "sqrt(total)"),
    "ReduceLogSum": Reduction("0", "total + value", "log{f}(({c})total)"),
    "ReduceLogSumExp": Reduction("0", "total + exp{f}(value - largest)", "log{f}(({c})total) + largest"),
    "ReduceSumSquare": Reduction("0", "total + (double)value * value"),
}
_WHOLE = {
    "ReduceSum": Reduction("0", "({c})(({U})total + ({U})value)", wide=False),
    "ReduceMean": Reduction("0", "total + value", "total / {count}"),
    "ReduceMax": Reduction("{low}", "value > total ? value : total", wide=False),
    "ReduceMin": Reduction("{high}", "value < total ? value : total", wide=False),
    "ReduceProd": Reduction("1", "({c})(({U})total * ({U})value)", wide=False),
    "ReduceL1": Reduction("0", "({c})(({U})total + (value < 0 ? ({U})0 - ({U})value : ({U})value))", wide=False),
    "ReduceL2": Reduction("0", "({c})(({U})total + ({U})value * ({U})value)", "sqrt((double)total)", wide=False),
    "ReduceLogSum": Reduction("0", "({c})(({U})total + ({U})value)", "log((double)total)", wide=False),
    "ReduceLogSumExp": Reduction("0", "total + exp((double)value - largest)", "log(total) + largest"),
    "ReduceSumSquare": Reduction("0", "({c})(({U})total + ({U})value * ({U})value)", wide=False),
}
_TRUTH = {
    "ReduceMax": Reduction("0", "total || value", wide=False),
    "ReduceMin": Reduction("1", "total && value", wide=False),
}
REDUCED = tuple(_REAL)
"""The reductions that there are."""
_TOTALS = 32
"""Accumulators of a sum of adjacent floats."""
_TOGETHER = 256
"""Adjacent elements of a result whose accumulators stay in the first cache."""
_CONVERTED = ("ReduceMean", "ReduceL2", "ReduceLogSum", "ReduceLogSumExp")
"""For integers these are computed in double and converted at the end."""


def reduced_axes(task: Task) -> tuple[int, ...] | None:
    """The axes, none negative; None if they are not constant."""
    rank = len(shape_of(task, 0))
    given = ints(task.constant(1)) if task.has(1) else task.attributes.get("axes")
    if task.has(1) and given is None:
        return None
    if not given:
        return () if task.attributes.get("noop_with_empty_axes") else tuple(range(rank))
    return tuple(sorted(a % rank for a in given))


def accumulates(task: Task) -> bool:
    """Whether there is an accumulator for the element type."""
    return task.operator.name in _TRUTH if are(task, [ir.DataType.BOOL], 0) else are(task, NUMBERS, 0)


def _joint(name: str) -> str:
    """The combination of two partial results; the second one is ``value``."""
    return _REAL[name].step if name in ("ReduceMax", "ReduceMin", "ReduceProd") else "total + value"


def _accepts(task: Task) -> bool:
    return accumulates(task) and reduced_axes(task) is not None


def _limit(dtype: ir.DataType, high: bool) -> str:
    """Greatest or least integer of a type."""
    bits = 8 * c_types.size(dtype)
    signed = dtype.is_signed()
    value = (1 << (bits - signed)) - 1 if high else -(1 << (bits - 1)) if signed else 0
    return c_types.literal(value, dtype)


def axes_apart(shape: Sequence[int], axes: Sequence[int]) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """Bounds of the loops over kept axes and over reduced axes; axes of the other kind have 1."""
    kept = tuple(1 if a in axes else n for a, n in enumerate(shape))
    return kept, tuple(n if a in axes else 1 for a, n in enumerate(shape))


def joined(axes: Sequence[int]) -> Callable[[Sequence[str], Sequence[str]], list[str]]:
    """Index of an element from the indices of both loop nests."""
    return lambda i, j: [j[a] if a in axes else i[a] for a in range(len(i))]


def place_in(axes: Sequence[int], rank: int, result_rank: int) -> Callable[[Sequence[str]], list[str]]:
    """Index in a result that keeps reduced axes with length 1, or drops them."""
    return lambda i: list(i) if result_rank == rank else [i[a] for a in range(rank) if a not in axes]


@loops("reducing loops", *_REAL, accepts=_accepts)
def reduce(task: Task) -> GeneratedKernel:
    """One accumulator for each element of the result."""
    template = Template(task)
    x, y = template.operand(0), template.result()
    axes = reduced_axes(task) or ()
    kept, reduced = axes_apart(x.shape, axes)
    along = next((a for a in axes if x.operand.strides[a] == 1 and x.shape[a] != 1), None)
    far = along is not None and x.dtype in FLOATS and not is_free(x.shape[along]) and x.shape[along] >= 2 * _TOTALS
    # The elements of the result that are neighbours in the input are summed together.
    near = (a for a in range(x.rank) if a not in axes and x.operand.strides[a] == 1 and x.shape[a] != 1)
    return accumulated(
        template,
        kept,
        reduced,
        joined(axes),
        place_in(axes, x.rank, y.rank),
        innermost=along if far else None,
        beside=next(near, None) if axes and task.operator.name != "ReduceLogSumExp" else None,
    )


def accumulated(
    template: Template,
    kept: Sequence[int],
    reduced: Sequence[int],
    at: Callable[[Sequence[str], Sequence[str]], list[str]],
    place: Callable[[Sequence[str]], list[str]],
    *,
    innermost: int | None = None,
    beside: int | None = None,
) -> GeneratedKernel:
    """The kernel of a reduction.

    Args:
        template: Of the task.
        kept, reduced: Bounds of the loops over results, and over the elements of each.
        at: Maps the indices of both to that of an element.
        place: Index of a result.
        innermost: Reduced axis of adjacent floats, of which compilers make vectors if there are several accumulators.
        beside: Kept axis of adjacent elements, each of which has an accumulator.
    """
    x, name = template.operand(0), template.task.operator.name
    real = x.dtype in FLOATS
    table = _REAL if real else _WHOLE if x.dtype in INTEGERS else _TRUTH
    how = table["ReduceSum" if name == "ReduceL1" and x.dtype in UNSIGNED else name]
    c = x.c
    count = 1
    for n in reduced:
        count *= n
    values = {
        "c": c,
        "f": "f" if c == "float" else "",
        "U": "uint64_t" if c in ("int64_t", "uint64_t") else "uint32_t",
        "count": as_divisor(count),
        "low": "" if real else _limit(x.dtype, False),
        "high": "" if real else _limit(x.dtype, True),
    }
    finish = how.finish.format(**values)
    if not real and name in _CONVERTED:
        finish = template.convert(f"({finish})", _DOUBLE, x.dtype)
    elif how.wide and c == "float":
        finish = f"(float)({finish})"
    extra = {"largest": True} if name == "ReduceLogSumExp" else {}
    return template.fill(
        "loops/reduce.c.jinja",
        specialised=innermost is not None or beside is not None,
        kept=kept,
        reduced=reduced,
        at=at,
        place=place,
        accumulator="double" if how.wide else c,
        c=c if real else "double",
        start=how.start.format(**values),
        step=how.step.format(**values),
        joint=_joint(name).format(**values),
        totals=_TOTALS,
        innermost=innermost,
        within=lambda j, text: [text if a == innermost else index for a, index in enumerate(j)],
        beside=beside,
        around=[1 if a == beside else n for a, n in enumerate(kept)],
        together=_TOGETHER,
        outer=[1 if a == innermost else n for a, n in enumerate(reduced)],
        finish=finish,
        **extra,
    )
