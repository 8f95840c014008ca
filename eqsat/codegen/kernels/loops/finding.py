"""Operators with as many results as data decides: kernels write the results into room for the most possible, and their
number.

Mirrors ``non_zero`` and ``Unique`` of ``eqsat/ops/families/gathering.py``, ``NonMaxSuppression`` of ``vision.py``. The
program reads the counts (:mod:`eqsat.codegen.found_sizes`) and views the first results.
"""

from __future__ import annotations

from collections.abc import Sequence

import onnx_ir as ir

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, only
from eqsat.codegen.kernels.loops.family import NUMBERS, are, dense, loops
from eqsat.codegen.program import FINDING, READ_SIZES
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import is_free

_ELEMENTS = NUMBERS | {ir.DataType.BOOL}


@loops("sizes from data", READ_SIZES.name, domain=READ_SIZES.domain, epilogue=False)
def read_sizes(task: Task) -> GeneratedKernel:
    """A copy; the program reads the sizes from it."""
    template = Template(task)
    x, y = template.operand(0), template.result()
    with template.loops("i", y.shape) as i:
        template.add(y.copy(x, i, i))
    return template.kernel()


@loops("non-zero loops", "NonZero", domain=FINDING, accepts=lambda task: are(task, _ELEMENTS), epilogue=False)
def non_zero(task: Task) -> GeneratedKernel:
    """A row of indices for each element that is not zero."""
    return Template(task).fill("loops/non_zero.c.jinja")


@loops("unique loops", "Unique", domain=FINDING, accepts=lambda task: are(task, _ELEMENTS), epilogue=False)
def unique(task: Task) -> GeneratedKernel:
    """Items that differ, by value or in the order in which they appear, NaN last."""
    template = Template(task)
    x, axis = template.operand(0), task.attributes["axis"]
    inner = tuple(1 if a == axis else n for a, n in enumerate(x.shape))

    def at(item: str, j: Sequence[str]) -> list[str]:
        return [item if a == axis else k for a, k in enumerate(j)]

    order = "(a > b) - (a < b)"
    if x.dtype in FLOATS:
        order = f"a == a && b == b ? {order} : (a != a) - (b != b)"
    count = x.shape[axis]
    elements = all(not is_free(n) and n == 1 for n in inner)
    table = 2 * count if elements else 0
    return template.fill(
        "loops/unique.c.jinja",
        scratch=8 * (4 * count + table),
        count=count,
        elements=elements,
        table=table,
        real=x.dtype in FLOATS,
        inner=inner,
        at=at,
        placed=at,
        order=order,
        by_value=bool(task.attributes["sorted"]),
    )


@loops("suppression loops", "NonMaxSuppression", domain=FINDING, epilogue=False)
def non_max_suppression(task: Task) -> GeneratedKernel:
    """The best boxes of each class, without those that overlap a better one."""
    template = Template(task)
    boxes, scores = template.operands(0, 1)

    def corners(name: str, box: str) -> str:
        first = [boxes.load("batch", box, k) for k in range(4)]
        if task.attributes.get("center_point_box"):
            x, y, width, height = first
            sides = {"left": (x, "-", width), "right": (x, "+", width), "top": (y, "-", height)}
            sides["bottom"] = (y, "+", height)
            return "\n".join(f"const float {name}_{s} = {m} {o} {n} / 2;" for s, (m, o, n) in sides.items())
        rows = []
        for low, high, p, q in (("top", "bottom", 0, 2), ("left", "right", 1, 3)):
            rows.append(f"const float {name}_{low} = {first[p]} < {first[q]} ? {first[p]} : {first[q]};")
            rows.append(f"const float {name}_{high} = {first[p]} < {first[q]} ? {first[q]} : {first[p]};")
        return "\n".join(rows)

    return template.fill(
        "loops/suppression.c.jinja",
        scratch=(2 * 8 + 4 * 4) * boxes.shape[1],
        batches=scores.shape[0],
        classes=scores.shape[1],
        boxes=boxes.shape[1],
        asked=only(template.x[2]),
        threshold=only(template.x[3]),
        least=only(template.x[4]) if task.has(4) else "",
        corners=corners,
    )


@loops("sizes of ranges", "RangeSize", domain=FINDING, accepts=lambda task: are(task, NUMBERS), epilogue=False)
def range_size(task: Task) -> GeneratedKernel:
    """How many numbers a range has."""
    template = Template(task)
    operands = template.operands(0, 1, 2)
    real = operands[0].dtype in FLOATS
    names = zip(("start", "limit", "delta"), map(only, operands), strict=True)
    return template.fill("loops/range_size.c.jinja", real=real, **dict(names))


@loops("windows of slices", "SliceWindow", domain=FINDING, epilogue=False)
def slice_window(task: Task) -> GeneratedKernel:
    """The first indices of a slice's axes, and their numbers of indices."""
    template = Template(task)
    sizes: Sequence[int] = task.attributes["sizes"]
    starts, ends = template.operands(0, 1)
    steps = template.x[2]
    return template.fill(
        "loops/slice_window.c.jinja",
        sizes=sizes,
        starts=[starts.load(k) for k in map(str, range(len(sizes)))],
        ends=[ends.load(k) for k in map(str, range(len(sizes)))],
        steps=["1" if steps is None else steps.load(str(k)) for k in range(len(sizes))],
    )


@loops("sizes of resizing", "ResizeSizes", domain=FINDING, accepts=lambda task: are(task, NUMBERS), epilogue=False)
def resize_sizes(task: Task) -> GeneratedKernel:
    """The sizes that scales, or sizes with a common scale, give a tensor."""
    return Template(task).fill("loops/resize_sizes.c.jinja", **task.attributes)


@loops("common sizes", "CommonSize", domain=FINDING, epilogue=False)
def common_size(task: Task) -> GeneratedKernel:
    """The size that all of several are, or that they broadcast to."""
    return Template(task).fill("loops/common_size.c.jinja", repeats=task.attributes["repeats"])


@loops("sizes of reshapes", "ReshapeSizes", domain=FINDING, epilogue=False)
def reshape_sizes(task: Task) -> GeneratedKernel:
    """A shape that data says, without 0 and -1."""
    template = Template(task)
    asked = template.operand(0)
    return template.fill(
        "loops/reshape_sizes.c.jinja",
        total=task.attributes["total"],
        kept=task.attributes["kept"],
        asked=lambda k: asked.load(str(k)),
    )


@loops("reshaping of data", "Reshape", domain=FINDING, wants=dense(0, output=True), epilogue=False)
def reshape(task: Task) -> GeneratedKernel:
    """The elements in their order, under a shape that data says."""
    template = Template(task)
    with template.block(f"for (ptrdiff_t k = 0; k < {template.operand(0).size}; k++)"):
        template.add("y0[k] = x0[k];")
    return template.kernel()
