"""Reading and writing at indices that are known at run time; mirrors ``eqsat/ops/families/gathering.py``.

The numpy executor refuses indices outside of an operand. C cannot report an error: a read outside returns the element
at the border, and a write outside is left out.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.expressions.basic import arithmetic
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task, dense_strides
from eqsat.codegen.kernel_templates import Template, TemplateTensor, along
from eqsat.codegen.kernels.loops.blocks import Block, filled
from eqsat.codegen.kernels.loops.family import NUMBERS, are, loops, shape_of
from eqsat.ops.windows import integers
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_choices import largest


def _axis(task: Task) -> int:
    return int(task.attributes["axis"]) % len(shape_of(task, 0))


def _gathered(template: Template, lead: int, **values: Any) -> GeneratedKernel:
    """The kernel of elements at indices, which the first ``lead`` axes of the result determine."""
    shape = template.result().shape
    ones = (1,) * len(shape)
    outer, inner = (*shape[:lead], *ones[lead:]), (*ones[:lead], *shape[lead:])
    return template.fill("loops/gather.c.jinja", lead=lead, outer=outer, inner=inner, **values)


@loops("gathering loops", "Gather")
def gather(task: Task) -> GeneratedKernel:
    """Slices along an axis."""
    template = Template(task)
    x, where = template.operands(0, 1)
    axis, wide = _axis(task), where.rank

    def position(i: Sequence[str], k: int) -> str:
        return where.load(*i[axis : axis + wide])

    def place(i: Sequence[str]) -> list[str]:
        return [*i[:axis], "at0", *i[axis + wide :]]

    sizes = [largest(x.shape[axis], 1)]
    return _gathered(template, axis + wide, depth=1, sizes=sizes, position=position, place=place)


def _by_element(x: TemplateTensor, where: TemplateTensor, axis: int) -> dict[str, Any]:
    """Template values for an index for each element; in the other axes, element and index have the same position."""
    return {
        "depth": 1,
        "sizes": [largest(x.shape[axis], 1)],
        "position": lambda i, k: where.load(*i),
        "place": lambda i: along(i, axis, "at0"),
    }


def _by_tuple(x: TemplateTensor, where: TemplateTensor, batch: int = 0) -> dict[str, Any]:
    """For the templates: a tuple of indices for each slice, after common axes."""
    depth, lead = where.shape[-1], where.rank - 1
    return {
        "depth": depth,
        "sizes": [largest(n, 1) for n in x.shape[batch : batch + depth]],
        "position": lambda i, k: where.load(*i[:lead], k),
        "place": lambda i: [*i[:batch], *(f"at{k}" for k in range(depth)), *i[lead:]],
    }


@loops("element gathering loops", "GatherElements")
def gather_elements(task: Task) -> GeneratedKernel:
    """One element for each index, at the index's own place in the other axes."""
    template = Template(task)
    x, where = template.operands(0, 1)
    return _gathered(template, where.rank, **_by_element(x, where, _axis(task)))


@loops("gathering loops", "GatherND")
def gather_nd(task: Task) -> GeneratedKernel:
    """Slices at index tuples, separately for each batch."""
    template = Template(task)
    x, where = template.operands(0, 1)
    return _gathered(template, where.rank - 1, **_by_tuple(x, where, task.attributes.get("batch_dims", 0)))


def _combination(reduction: str, dtype: ir.DataType, c: str) -> str | None:
    """How an update changes the old element; None if it replaces it."""
    if reduction == "none":
        return None
    if reduction in ("add", "mul"):
        if dtype == ir.DataType.BOOL:
            return f"old {'||' if reduction == 'add' else '&&'} value"
        return arithmetic("+" if reduction == "add" else "*", "old", "value", dtype)
    if dtype in FLOATS:
        return f"{'maximum' if reduction == 'max' else 'minimum'}_{c}(old, value)"
    return f"old {'>' if reduction == 'max' else '<'} value ? old : value"


def _combines(task: Task) -> bool:
    return task.attributes.get("reduction", "none") == "none" or are(task, NUMBERS | {ir.DataType.BOOL}, 0)


@loops("scattering loops", "ScatterElements", "Scatter", accepts=_combines, epilogue=False)
def scatter_elements(task: Task) -> GeneratedKernel:
    """A copy with one element replaced, or combined, for each index."""
    template = Template(task)
    x, where = template.operands(0, 1)
    combine = _combination(task.attributes.get("reduction", "none"), x.dtype, x.c)
    return template.fill("loops/scatter.c.jinja", combine=combine, **_by_element(x, where, _axis(task)))


@loops(
    "scattering loops",
    "ScatterND",
    accepts=lambda task: _combines(task) and shape_of(task, 1)[-1] > 0,
    epilogue=False,
)
def scatter_nd(task: Task) -> GeneratedKernel:
    """A copy with slices at index tuples replaced or combined."""
    template = Template(task)
    x, where = template.operands(0, 1)
    combine = _combination(task.attributes.get("reduction", "none"), x.dtype, x.c)
    return template.fill("loops/scatter.c.jinja", combine=combine, **_by_tuple(x, where))


@loops("one-hot loops", "OneHot", accepts=lambda task: are(task, FLOATS | INTEGERS, 0))
def one_hot(task: Task) -> GeneratedKernel:
    """One value where the index is the class, another elsewhere."""
    template = Template(task)
    y = template.result()
    axis = task.attributes["axis"] % y.rank
    return template.fill(
        "loops/one_hot.c.jinja",
        axis=axis,
        count=y.shape[axis],
        outer=tuple(n if a < axis else 1 for a, n in enumerate(y.shape)),
        inner=tuple(1 if a < axis else n for a, n in enumerate(y.shape)),
        after=tuple(n if a > axis else 1 for a, n in enumerate(y.shape)),
        int64=ir.DataType.INT64,
    )


@loops("compressing loops", "Compress", accepts=lambda task: task.constant(1) is not None)
def compress(task: Task) -> GeneratedKernel:
    """The slices or elements where a constant condition is true."""
    template = Template(task)
    x = template.operand(0)
    y = template.result()
    condition = task.constant(1)
    assert condition is not None
    kept = np.flatnonzero(condition).astype(np.int32)
    axis = task.attributes.get("axis")
    table = template.table(kept)
    if axis is not None:
        axis %= x.rank

        def slices(i: Sequence[str]) -> list[str]:
            return [table.load(k) if a == axis else k for a, k in enumerate(i)]

        return filled(template, [Block(y.shape, list, x, slices)])
    steps = dense_strides(x.shape)

    def index(i: Sequence[str]) -> list[str]:
        return [f"{table.load(i[0])} / {step} % {n}" for step, n in zip(steps, x.shape, strict=True)]

    return filled(template, [Block(y.shape, list, x, index)])


@loops("reversing loops", "ReverseSequence")
def reverse_sequence(task: Task) -> GeneratedKernel:
    """The first elements of each sequence in reverse order."""
    time, batch = task.attributes["time_axis"], task.attributes["batch_axis"]
    return Template(task).fill("loops/reverse.c.jinja", time=time, batch=batch, n=shape_of(task, 0)[time])


@loops("unpooling loops", "MaxUnpool", epilogue=False)
def max_unpool(task: Task) -> GeneratedKernel:
    """Each value at the position that its index gives, zeros elsewhere."""
    template = Template(task)
    x = template.operand(0)
    rank = x.rank - 2
    kernel_shape = integers(task.attributes, "kernel_shape", ())
    strides = integers(task.attributes, "strides", (1,) * rank)
    pads = integers(task.attributes, "pads", (0,) * (2 * rank))
    natural = [
        *x.shape[:2],
        *((x.shape[2 + a] - 1) * strides[a] + kernel_shape[a] - pads[a] - pads[a + rank] for a in range(rank)),
    ]
    y = task.output
    together = y.shape == tuple(natural) and y.strides == dense_strides(y.shape)
    return template.fill(
        "loops/unpool.c.jinja",
        flat=template.y[0].dense((math.prod(natural),)) if together and template.y[0] is not None else None,
        natural=natural,
        total=math.prod(natural),
        steps=dense_strides(tuple(natural)),
        places=[f"p{a}" for a in range(x.rank)],
    )


@loops("scattering loops", "TensorScatter", epilogue=False)
def tensor_scatter(task: Task) -> GeneratedKernel:
    """A cache with an update from a place on that each sample of the batch has."""
    template = Template(task)
    x = template.operand(0)
    axis, starts = int(task.attributes.get("axis", -2)) % x.rank, template.x[2] if task.has(2) else None
    return template.fill(
        "loops/tensor_scatter.c.jinja",
        axis=axis,
        size=largest(x.shape[axis], 1),
        start=None if starts is None else lambda i: f"(ptrdiff_t){starts.load(i)}",
        circular=task.attributes.get("mode", "linear") == "circular",
    )
