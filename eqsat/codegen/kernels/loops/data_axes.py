"""Kernels for axes, steps and widths that data decides: they turn data into numbers for each axis, and use these
numbers.

:mod:`eqsat.codegen.data_axes` lowers to these. A number that does not fit is written as -1, which is not a size, so
that the program ends with an error status.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, only
from eqsat.codegen.kernels.loops.family import loops, shape_of
from eqsat.codegen.kernels.loops.reductions import REDUCED, accumulated, accumulates
from eqsat.codegen.program import FINDING


@loops("axes from data", "Axes", domain=FINDING, epilogue=False)
def axes(task: Task) -> GeneratedKernel:
    """The dimensions that axes from data leave, add or part."""
    sizes: Sequence[int] = task.attributes["sizes"]
    template = Template(task)
    given = template.operand(0)
    kind = task.attributes["kind"]
    count = given.size
    rank = len(sizes) + (count if kind == "unsqueeze" else 0)
    return template.fill(
        "loops/axes.c.jinja",
        kind=kind,
        sizes=sizes,
        rank=rank,
        count=count,
        axis=given.load("k") if given.rank else given.load(),
        noop=task.attributes["noop"],
    )


@loops("reductions over axes from data", *REDUCED, domain=FINDING, accepts=lambda task: accumulates(task))
def reduce(task: Task) -> GeneratedKernel:
    """A reduction as with known axes, except that one index of each axis runs either over kept or over reduced
    positions.
    """
    template = Template(task)
    y = template.result()
    sizes = task.constant(1)
    assert sizes is not None

    def at(i: Sequence[str], j: Sequence[str]) -> list[str]:
        return [f"{p} + {q}" for p, q in zip(i, j, strict=True)]

    return accumulated(template, y.shape, tuple(sizes), at, list)


@loops("slices along axes from data", "SliceAxes", domain=FINDING, epilogue=False)
def slice_axes(task: Task) -> GeneratedKernel:
    """For each axis how many indices a slice takes, the first one, and the step."""
    template = Template(task)
    starts, ends = template.operands(0, 1)
    along, steps = template.x[2], template.x[3]
    return template.fill(
        "loops/slice_axes.c.jinja",
        sizes=task.attributes["sizes"],
        count=starts.shape[0],
        start=starts.load("k"),
        end=ends.load("k"),
        axis="k" if along is None else along.load("k"),
        step="1" if steps is None else steps.load("k"),
    )


@loops("slicing from data", "Slice", domain=FINDING)
def slices(task: Task) -> GeneratedKernel:
    """From first indices with steps that are in memory."""
    template = Template(task)
    x, y = template.operand(0), template.result()
    first, step = template.operands(1, 2)

    def index(i: Sequence[str]) -> list[str]:
        return [f"{first.load(a)} + {k} * {step.load(a)}" for a, k in enumerate(i)]

    with template.loops("i", y.shape) as i:
        template.add(y.copy(x, index(i), i))
    return template.kernel()


@loops("pads along axes from data", "PadAxes", domain=FINDING, epilogue=False)
def pad_axes(task: Task) -> GeneratedKernel:
    """For each axis the result's size, the kept indices, and where these are in the result and in the operand."""
    template = Template(task)
    pads, along = template.operand(0), template.x[1]
    count = len(task.attributes["sizes"]) if along is None else along.shape[0]
    return template.fill(
        "loops/pad_axes.c.jinja",
        sizes=task.attributes["sizes"],
        count=count,
        before=pads.load("k"),
        after=pads.load(f"k + {count}"),
        axis="k" if along is None else along.load("k"),
    )


@loops("padding from data", "Pad", domain=FINDING, epilogue=False)
def pad(task: Task) -> GeneratedKernel:
    """Each place of the result has its source, or the value of the pad."""
    template = Template(task)
    x = template.operand(0)
    fill = only(template.x[4]) if task.has(4) and 0 not in shape_of(task, 4) else "0"
    return template.fill(
        "loops/pad_from_data.c.jinja",
        mode=task.attributes["mode"],
        fill=fill,
        kept=template.operand(1),
        shift=template.operand(2),
        first=template.operand(3),
        places=[f"p{a}" for a in range(x.rank)],
    )
