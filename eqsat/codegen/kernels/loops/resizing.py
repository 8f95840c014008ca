"""Resize: taps and weights of each axis are tables; mirrors ``eqsat/ops/families/resize.py``, which computes them.

Where a size or a scale is free, the kernel computes the tables of all axes at its beginning.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task, View
from eqsat.codegen.kernel_templates import Template, TemplateTensor
from eqsat.codegen.kernels.loops.family import are, loops, shape_of
from eqsat.codegen.shape_arithmetic import elements, is_sizes
from eqsat.ops.families.resize import ResizePlan, axis_taps, resize_plan
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import any_free, greatest


@dataclass(frozen=True)
class InterpolatedAxis:
    """An axis that is interpolated.

    Attributes:
        axis: Which one.
        taps: How many elements are summed, a number or C.
        index: Their places, (outputs, taps).
        weights: Their weights, (outputs, taps).
    """

    axis: int
    taps: int | str
    index: TemplateArray
    weights: TemplateArray


class TemplateArray(Protocol):
    """An array that templates read."""

    def load(self, *index: str) -> str:
        """An element."""
        ...


@dataclass(frozen=True)
class Computed:
    """A table that the kernel computes.

    Attributes:
        name: In C.
        columns: Elements of a row, in C.
    """

    name: str
    columns: str = "1"

    def load(self, *index: str) -> str:
        """An element by its row and, if there are several, its column."""
        row, *column = index
        return f"{self.name}[{row} * {self.columns} + {column[0]}]" if column else f"{self.name}[{row}]"


@dataclass(frozen=True)
class FreeAxis:
    """An axis whose size or scale is known only at run time.

    Attributes:
        axis: Number of the axis.
        length, size: Of the input and of the output.
        scale: C of the scale, a double.
        region: C of the part that ``tf_crop_and_resize`` takes.
        reach: Taps on each side of a position: a number, or C if the scale decides it.
        most: Upper bound of the elements of a table of taps.
        offset: Place of its tables in the working memory.
    """

    axis: int
    length: int
    size: int
    scale: str
    region: tuple[str, str]
    reach: int | str
    most: int
    offset: int


def plan_of(task: Task) -> ResizePlan | None:
    """The axes in the order in which they are resized; None if sizes or scales are not known in advance."""
    if is_dynamic(task):
        return None
    return resize_plan(task.attributes, shape_of(task, 0), *(task.constant(k) for k in (1, 2, 3)))


def is_dynamic(task: Task) -> bool:
    """Whether a size or a scale is not known in advance."""
    given = [task.inputs[k] for k in (1, 2, 3) if task.has(k)]
    shapes = [shape_of(task, 0), *(v.shape for v in task.outputs if v is not None)]
    return any(isinstance(x, View) or is_sizes(x) for x in given) or any(map(any_free, shapes))


def free_axes(task: Task, template: Template) -> list[FreeAxis]:
    """The axes that are resized, or may be."""
    attrs, before, after = task.attributes, shape_of(task, 0), task.output.shape
    chosen = [a % len(before) for a in attrs.get("axes") or range(len(before))]
    factors = _factors(task, template, chosen)
    crop = attrs.get("coordinate_transformation_mode") == "tf_crop_and_resize"
    found: list[FreeAxis] = []
    offset = 0
    for k, (a, factor) in enumerate(zip(chosen, factors, strict=True)):
        if not crop and before[a] == after[a] and factor in ("1.0", _quotient(after[a], before[a])):
            continue
        roi = template.x[1] if crop and task.has(1) else None
        region = ("0.0", "1.0") if roi is None else (roi.load(str(k)), roi.load(str(k + len(chosen))))
        reach = _reach(attrs, factor)
        rows, side = greatest(after[a]), 2 if attrs["mode"] == "cubic" else 1
        # If the scale decides the number of taps, it grows as the number of outputs falls.
        most = 2 * reach * rows if isinstance(reach, int) else 4 * side * (greatest(before[a]) + rows)
        found.append(FreeAxis(a, before[a], after[a], factor, region, reach, most, offset))
        offset += -(-(most * (4 + 8) + rows) // 8) * 8
    return found


def _factors(task: Task, template: Template, chosen: Sequence[int]) -> list[str]:
    """C of the scale of each axis."""
    before, after = shape_of(task, 0), task.output.shape
    scales, sizes = task.inputs[2] if task.has(2) else None, task.inputs[3] if task.has(3) else None
    if sizes is None or sizes.shape == (0,):
        if isinstance(scales, np.ndarray):
            return [repr(float(f)) for f in scales]
        return [f"(double){template.operand(2).load(str(k))}" for k in range(len(chosen))]
    policy = task.attributes.get("keep_aspect_ratio_policy", "stretch")
    if policy == "stretch":
        return [_quotient(after[a], before[a]) for a in chosen]
    if isinstance(sizes, np.ndarray):
        wanted = [str(n) for n in elements(sizes)]
    else:
        wanted = [template.operand(3).load(str(k)) for k in range(len(chosen))]
    common = ""
    for n, a in zip(wanted, chosen, strict=True):
        factor = f"(double){n} / (double){before[a]}"
        common = f"{'fmin' if policy == 'not_larger' else 'fmax'}({common}, {factor})" if common else factor
    return [common] * len(chosen)


def _quotient(after: int, before: int) -> str:
    return f"(double){after} / (double){before}"


def _reach(attrs: Mapping[str, Any], factor: str) -> int | str:
    """Taps on each side of a position."""
    side = 2 if attrs["mode"] == "cubic" else 1
    if not attrs.get("antialias"):
        return side
    try:
        return math.ceil(side / min(float(factor), 1.0))
    except ValueError:
        return f"(ptrdiff_t)ceil({side} / fmin(scale, 1.0))"


def _accepts(task: Task) -> bool:
    return are(task, FLOATS | INTEGERS, 0) and task.outputs[0] is not None


@dataclass
class _Tables:
    """The tables of a kernel.

    Attributes:
        axes: Axes of several taps.
        nearest: By axis the place of the nearest element.
        outside: By axis which results lie outside.
    """

    axes: list[InterpolatedAxis] = field(default_factory=list)
    nearest: dict[int, TemplateArray] = field(default_factory=dict)
    outside: dict[int, TemplateArray] = field(default_factory=dict)


def _constant_tables(template: Template, x: TemplateTensor, plan: ResizePlan, work: ir.DataType) -> _Tables:
    made = _Tables()
    # The last axis that is resized is the outermost sum.
    for p in reversed(plan.axes):
        index, weights, beyond = axis_taps(p, x.shape[p.axis], plan.rule)
        if weights is None:
            made.nearest[p.axis] = template.table(index.astype(np.int32))
        else:
            used = np.flatnonzero(weights.any(0)) if index.shape[1] <= 4 else np.arange(index.shape[1])
            made.axes.append(
                InterpolatedAxis(
                    p.axis,
                    len(used),
                    template.table(np.ascontiguousarray(index[:, used]).astype(np.int32)),
                    template.table(np.ascontiguousarray(weights[:, used]).astype(work.numpy())),
                )
            )
        if beyond is not None and beyond.any():
            made.outside[p.axis] = template.table(beyond)
    return made


@loops("resizing loops", "Resize", accepts=_accepts)
def resize(task: Task) -> GeneratedKernel:
    """The nearest elements, or weighted sums of neighbours."""
    template = Template(task)
    x = template.operand(0)
    work = ir.DataType.DOUBLE if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    plan = plan_of(task)
    tables = _Tables() if plan is None else _constant_tables(template, x, plan, work)
    free = free_axes(task, template) if plan is None else []
    for number, f in enumerate(free):
        if task.attributes["mode"] == "nearest":
            tables.nearest[f.axis] = Computed(f"index{number}")
        else:
            taps = f"taps{number}"
            tables.axes.append(
                InterpolatedAxis(f.axis, taps, Computed(f"index{number}", taps), Computed(f"weights{number}", taps))
            )
        if task.attributes.get("coordinate_transformation_mode") == "tf_crop_and_resize":
            tables.outside[f.axis] = Computed(f"beyond{number}")
    axes, nearest, outside = tables.axes, tables.nearest, tables.outside
    numbers = {a.axis: k for k, a in enumerate(axes)}

    def place(i: Sequence[str]) -> list[str]:
        return [
            f"p{numbers[a]}" if a in numbers else nearest[a].load(k) if a in nearest else k for a, k in enumerate(i)
        ]

    def beyond_any(i: Sequence[str]) -> str:
        return " || ".join(table.load(i[a]) for a, table in sorted(outside.items()))

    return template.fill(
        "loops/resize.c.jinja",
        scratch=sum(-(-(f.most * (4 + 8) + greatest(f.size)) // 8) * 8 for f in free),
        free=free,
        rule=task.attributes,
        computed="float" if task.attributes["mode"] == "nearest" else "double",
        axes=axes,
        place=place,
        work=c_types.computed(work),
        finish=lambda v: v if x.dtype in FLOATS else template.convert(v, work, x.dtype),
        outside=beyond_any if outside else None,
        extrapolated=c_types.literal(task.attributes.get("extrapolation_value", 0.0), x.dtype),
    )
