"""Convolutions at places that data shifts, and columns summed to images.

They mirror ``DeformConv`` in ``eqsat/ops/families/convolution.py`` and ``Col2Im`` in ``eqsat/ops/families/vision.py``.
"""

from __future__ import annotations

import math
from typing import Any

from eqsat.codegen.kernel import GeneratedKernel, Task, dense_strides
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, ints, loops, shape_of
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import any_free


def _window(task: Task, axes: int) -> dict[str, Any]:
    """Strides, dilations and padding, with defaults for those that are not given."""
    given = {name: task.attributes.get(name) for name in ("strides", "dilations", "pads")}
    ones, zeros = (1,) * axes, (0,) * (2 * axes)
    return {
        "strides": tuple(given["strides"] or ones),
        "dilations": tuple(given["dilations"] or ones),
        "pads": tuple(given["pads"] or zeros),
    }


def _is_image(task: Task) -> bool:
    return are(task, FLOATS) and len(shape_of(task, 0)) == 4 and task.attributes.get("auto_pad", "NOTSET") == "NOTSET"


@loops("deformable loops", "DeformConv", accepts=_is_image)
def deformable_convolution(task: Task) -> GeneratedKernel:
    """Each tap reads the image where its own offset says; between elements it interpolates."""
    template = Template(task)
    x, w = template.operands(0, 1)
    groups, parts = task.attributes.get("group", 1), task.attributes.get("offset_group", 1)
    return template.fill(
        "loops/deformable.c.jinja",
        c=x.c,
        depth=w.shape[1],
        maps=w.shape[0] // groups,
        kernel=w.shape[2:],
        shared=x.shape[1] // parts,
        **_window(task, 2),
    )


@loops(
    "columns to images",
    "Col2Im",
    accepts=lambda task: are(task, FLOATS, 0) and all(task.constant(k) is not None for k in (1, 2)),
)
def columns_to_image(task: Task) -> GeneratedKernel:
    """The sum of all blocks at their places."""
    template = Template(task)
    image, block = ints(task.constant(1)), ints(task.constant(2))
    assert image is not None and block is not None
    window = _window(task, len(image))
    counts = []
    for axis, (size, width) in enumerate(zip(image, block, strict=True)):
        padded = size + window["pads"][axis] + window["pads"][axis + len(image)]
        span = window["dilations"][axis] * (width - 1) + 1
        counts.append((padded - span) // window["strides"][axis] + 1)
    values = {"image": image, "block": block, "taps": math.prod(block), "counts": counts, **window}
    if any_free((*image, *counts)):
        return template.fill("loops/columns_to_image.c.jinja", **values)
    column = " + ".join(f"a{axis} * {step}" for axis, step in enumerate(dense_strides(tuple(counts))))
    return template.fill(
        "loops/columns_by_taps.c.jinja",
        scratch=8 * math.prod(image),
        specialised=True,
        places=math.prod(image),
        image_steps=dense_strides(image),
        column=column,
        **values,
    )
