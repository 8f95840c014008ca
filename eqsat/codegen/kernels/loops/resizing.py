"""Resize: taps and weights of each axis are tables; mirrors ``eqsat/ops/families/resize.py``, which computes them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.codegen import dtypes
from eqsat.codegen.expressions.forms import FLOATS, INTEGERS
from eqsat.codegen.kernel import Kernel, Task
from eqsat.codegen.kernels.loops.family import are, loops, shape_of
from eqsat.codegen.templates import Template, Tensor
from eqsat.ops.families.resize import Plan, axis_taps, resize_plan


@dataclass(frozen=True)
class Axis:
    """An axis that is interpolated.

    Attributes:
        axis: Which one.
        taps: How many elements are summed.
        index: Their places, (outputs, taps).
        weights: Their weights, (outputs, taps).
    """

    axis: int
    taps: int
    index: Tensor
    weights: Tensor


def plan_of(task: Task) -> Plan | None:
    """The axes in the order in which they are resized; None unless sizes are known in advance."""
    if any(task.has(k) and task.constant(k) is None for k in (1, 2, 3)):
        return None
    return resize_plan(task.attributes, shape_of(task, 0), *(task.constant(k) for k in (1, 2, 3)))


def _accepts(task: Task) -> bool:
    return are(task, FLOATS | INTEGERS, 0) and task.outputs[0] is not None and plan_of(task) is not None


@loops("resizing loops", "Resize", accepts=_accepts)
def resize(task: Task) -> Kernel:
    """The nearest elements, or weighted sums of neighbours."""
    template = Template(task)
    x = template.operand(0)
    plan = plan_of(task)
    assert plan is not None
    work = ir.DataType.DOUBLE if x.dtype == ir.DataType.DOUBLE else ir.DataType.FLOAT
    nearest: dict[int, Tensor] = {}
    axes: list[Axis] = []
    outside: dict[int, Tensor] = {}
    # The last axis that is resized is the outermost sum.
    for p in reversed(plan.axes):
        index, weights, beyond = axis_taps(p, x.shape[p.axis], plan.rule)
        if weights is None:
            nearest[p.axis] = template.table(index.astype(np.int32))
        else:
            used = np.flatnonzero(weights.any(0)) if index.shape[1] <= 4 else np.arange(index.shape[1])
            axes.append(
                Axis(
                    p.axis,
                    len(used),
                    template.table(np.ascontiguousarray(index[:, used]).astype(np.int32)),
                    template.table(np.ascontiguousarray(weights[:, used]).astype(work.numpy())),
                )
            )
        if beyond is not None and beyond.any():
            outside[p.axis] = template.table(beyond)
    numbers = {a.axis: k for k, a in enumerate(axes)}

    def place(i: Sequence[str]) -> list[str]:
        return [
            f"p{numbers[a]}" if a in numbers else nearest[a].load(k) if a in nearest else k for a, k in enumerate(i)
        ]

    def beyond_any(i: Sequence[str]) -> str:
        return " || ".join(table.load(i[a]) for a, table in sorted(outside.items()))

    return template.fill(
        "loops/resize.c.jinja",
        axes=axes,
        place=place,
        work=dtypes.computed(work),
        finish=lambda v: v if x.dtype in FLOATS else template.convert(v, work, x.dtype),
        outside=beyond_any if outside else None,
        extrapolated=dtypes.literal(task.attributes.get("extrapolation_value", 0.0), x.dtype),
    )
