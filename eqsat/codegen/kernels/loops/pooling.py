"""Pooling over windows and over whole planes; mirrors ``eqsat/ops/families/pooling.py``."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.expressions.quantization import saturated
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, TemplateTensor, only
from eqsat.codegen.kernels.loops.family import MICROSOFT, NUMBERS, are, loops
from eqsat.ops.windows import Windows, integers, windows
from eqsat.schema.dimension import as_divisor
from eqsat.schema.dtypes import BYTES, FLOATS


def _source(template: Template) -> TemplateTensor:
    x = template.operand(0)
    if template.task.attributes.get("channels_last"):
        return x.transpose((0, x.rank - 1, *range(1, x.rank - 1)))
    return x


def _place(template: Template) -> Callable[[Sequence[str], Sequence[str]], list[str]]:
    last = bool(template.task.attributes.get("channels_last"))
    return lambda b, o: [b[0], *o, b[1]] if last else [*b, *o]


def _whole(spatial: Sequence[int]) -> Windows:
    ones, zeros = (1,) * len(spatial), (0,) * len(spatial)
    return Windows(tuple(spatial), ones, ones, zeros, zeros, ones)


def _windows(task: Task, source: TemplateTensor) -> Windows:
    """The windows that the attributes specify, or one over everything for the global operators, which have none."""
    if task.operator.name.startswith(("Global", "QLinearGlobal")):
        return _whole(source.shape[2:])
    shape = integers(task.attributes, "kernel_shape", ())
    return windows(task.attributes, source.shape[2:], shape, ceil=bool(task.attributes.get("ceil_mode", 0)))


def _places(rank: int) -> tuple[str, ...]:
    return tuple(f"p{axis}" for axis in range(rank))


@loops("pooling loops", "MaxPool", "GlobalMaxPool", accepts=lambda task: are(task, NUMBERS))
def max_pool(task: Task) -> GeneratedKernel:
    """Maximum of each window, and where it is."""
    template = Template(task)
    source = _source(template)
    real = source.dtype in FLOATS
    spatial = source.shape[2:]
    columns_first = bool(task.attributes.get("storage_order", 0))
    rank = len(spatial)
    steps = [math.prod(spatial[:a] if columns_first else spatial[a + 1 :]) for a in range(rank)]
    lowest = c_types.literal(
        -math.inf if real else np.iinfo(source.dtype.numpy()).min if source.dtype in INTEGERS else 0, source.dtype
    )
    return template.fill(
        "loops/pool.c.jinja",
        specialised=True,
        kind="max",
        source=source,
        at=_windows(task, source),
        lowest=lowest,
        better="(value > best || value != value) && best == best" if real else "value > best",
        places=_places(rank),
        flat=" + ".join(f"p{a} * {step}" for a, step in enumerate(steps)),
        plane=math.prod(spatial),
    )


def _sums(
    template: Template,
    source: TemplateTensor,
    at: Windows,
    c: str,
    term: str,
    finish: str,
    *,
    counted: bool = False,
    with_padding: bool = False,
    real: Callable[[str], str] = str,
) -> GeneratedKernel:
    """Sums of terms of ``value`` over windows; ``counted`` is how many elements a window counts."""
    spatial = source.shape[2:]
    low = [-b if with_padding else 0 for b in at.begin]
    high = [n + e if with_padding else n for n, e in zip(spatial, at.end, strict=True)]
    return template.fill(
        "loops/pool.c.jinja",
        specialised=True,
        kind="sum",
        source=source,
        at=at,
        c=c,
        term=term,
        finish=finish,
        counted=counted,
        low=low,
        high=high,
        places=_places(len(spatial)),
        place=_place(template),
        real=real,
    )


@loops("pooling loops", "AveragePool", accepts=lambda task: are(task, FLOATS))
def average_pool(task: Task) -> GeneratedKernel:
    """Mean of each window, over the elements inside the input or also over those in the padding."""
    template = Template(task)
    source = _source(template)
    padding = bool(task.attributes.get("count_include_pad", 0))
    finish = f"total0 / ({source.c})counted"
    return _sums(
        template, source, _windows(task, source), source.c, "value", finish, counted=True, with_padding=padding
    )


@loops("pooling loops", "GlobalAveragePool", accepts=lambda task: are(task, FLOATS))
def global_average_pool(task: Task) -> GeneratedKernel:
    """Mean of each plane."""
    template = Template(task)
    source = _source(template)
    at = _windows(task, source)
    return _sums(template, source, at, "double", "value", f"({source.c})(total0 / {as_divisor(math.prod(at.kernel))})")


@loops("pooling loops", "LpPool", "GlobalLpPool", accepts=lambda task: are(task, FLOATS))
def lp_pool(task: Task) -> GeneratedKernel:
    """p-norm of each window."""
    template = Template(task)
    source = _source(template)
    p = task.attributes.get("p", 2)
    c = source.c
    f = "f" if c == "float" else ""
    term = {1: f"fabs{f}(value)", 2: "value * value"}.get(p, f"pow{f}(fabs{f}(value), {p})")
    root = c_types.literal(1.0 / p, ir.DataType.DOUBLE)
    finish = {1: "total0", 2: f"sqrt{f}(total0)"}.get(p, f"pow{f}(total0, ({c}){root})")
    return _sums(template, source, _windows(task, source), c, term, finish)


@loops("quantized pooling loops", "QLinearAveragePool", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0))
def qlinear_average_pool(task: Task) -> GeneratedKernel:
    """Mean of each window of the dequantized input; the zero point is added before rounding."""
    template = Template(task)
    source = _source(template)
    y = template.result()
    at = _windows(task, source)
    padding = bool(task.attributes.get("count_include_pad", 0))
    zero = only(template.x[2])
    scale = only(template.x[1])
    count = f"{float(math.prod(at.kernel))}f" if padding else "(float)counted"
    y_zero = only(template.x[4])
    value = f"rintf(total0 / {count} / {only(template.x[3])} + (float){y_zero})"
    return _sums(
        template,
        source,
        at,
        "float",
        "value",
        saturated(value, y.value_dtype),
        counted=not padding,
        real=lambda v: f"((float){v} - (float){zero}) * {scale}",
    )


@loops(
    "quantized pooling loops", "QLinearGlobalAveragePool", domain=MICROSOFT, accepts=lambda task: are(task, BYTES, 0)
)
def qlinear_global_average_pool(task: Task) -> GeneratedKernel:
    """Exact sum of each plane, then one scale."""
    template = Template(task)
    source = _source(template)
    y = template.result()
    at = _windows(task, source)
    count = math.prod(at.kernel)
    scale = f"({only(template.x[1])} / ({only(template.x[3])} * {float(count)}f))"
    total = f"(float)(total0 - {count} * (int64_t){only(template.x[2])})"
    value = saturated(f"rintf({total} * {scale}) + (float){only(template.x[4])}", y.value_dtype)
    return _sums(template, source, at, "int64_t", "value", value)
