"""Normalisations by norms, by neighbours, and by mean and variance alone; mirrors ``normalization.py`` of ``ops``."""

from __future__ import annotations

import math

from eqsat.codegen import c_types
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import loops
from eqsat.codegen.kernels.loops.normalization import floats, suffix
from eqsat.codegen.kernels.loops.reductions import axes_apart, joined


@loops("normalisation loops", "MeanVarianceNormalization", accepts=floats)
def mean_variance_normalization(task: Task) -> GeneratedKernel:
    """Over the given axes; the tiny constant is the one in the operator's definition."""
    template = Template(task)
    x = template.operand(0)
    axes = tuple(int(a) % x.rank for a in task.attributes["axes"])
    kept, reduced = axes_apart(x.shape, axes)
    tiny = c_types.literal(1e-9, x.dtype)
    return template.fill(
        "loops/lines.c.jinja",
        kind="standard",
        kept=kept,
        reduced=reduced,
        at=joined(axes),
        count=math.prod(reduced),
        tiny=tiny,
    )


@loops("normalisation loops", "LRN", accepts=floats)
def local_response_normalization(task: Task) -> GeneratedKernel:
    """Each element by the squares of its neighbours across channels."""
    template = Template(task)
    x = template.operand(0)
    size, beta = int(task.attributes["size"]), task.attributes["beta"]
    f = suffix(x.c)
    # Powers are slow; the usual exponent 3/4 is two square roots.
    usual, other = f"(sqrt{f}(base) * sqrt{f}(sqrt{f}(base)))", f"pow{f}(base, {c_types.literal(beta, x.dtype)})"
    return template.fill(
        "loops/lines.c.jinja",
        kind="neighbours",
        before=(size - 1) // 2,
        after=size - 1 - (size - 1) // 2,
        alpha=f"({c_types.literal(task.attributes['alpha'], x.dtype)} / {c_types.literal(size, x.dtype)})",
        bias=c_types.literal(task.attributes["bias"], x.dtype),
        power=usual if beta == 0.75 else other,
    )


@loops("normalisation loops", "LpNormalization", accepts=floats)
def lp_normalization(task: Task) -> GeneratedKernel:
    """By the 1- or 2-norm along an axis; where that is zero, the result is zero."""
    template = Template(task)
    x = template.operand(0)
    axis = int(task.attributes["axis"]) % x.rank
    first = task.attributes["p"] == 1
    kept, _ = axes_apart(x.shape, (axis,))
    return template.fill(
        "loops/lines.c.jinja",
        kind="norm",
        axis=axis,
        kept=kept,
        term="fabs(value)" if first else "value * value",
        root="total" if first else "sqrt(total)",
    )
