"""Elements of images at places between elements: grids and regions; mirrors ``eqsat/ops/families/vision.py``."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, loops
from eqsat.schema.dtypes import FLOATS

_TAPS = {"nearest": 1, "linear": 2, "cubic": 4}


@loops("sampling loops", "GridSample", accepts=lambda task: are(task, FLOATS))
def grid_sample(task: Task) -> GeneratedKernel:
    """Interpolated at the places that a grid says, in coordinates from -1 to 1."""
    template = Template(task)
    x, grid = template.operands(0, 1)
    mode, corners = task.attributes["mode"], bool(task.attributes["align_corners"])
    axes = range(x.rank - 2)
    c = "double" if ir.DataType.DOUBLE in (x.dtype, grid.dtype) else "float"

    def end(axis: int, is_last: bool) -> str:
        n = x.shape[axis + 2]
        if corners:
            return f"({n} - 1)" if is_last else "0"
        return f"({n} - {c_types.literal(0.5, ir.DataType.FLOAT)})" if is_last else "-0.5f"

    return template.fill(
        "loops/grid_sample.c.jinja",
        c=c,
        mode=mode,
        padding=task.attributes["padding_mode"],
        corners=corners,
        taps=_TAPS[mode],
        before=1 if mode == "cubic" else 0,
        axes=list(axes),
        places=grid.shape[:-1],
        given=lambda i, axis: grid.load(*i, len(axes) - 1 - axis),
        sources=[f"at{a}[k{a}]" for a in axes],
        low=lambda axis: end(axis, False),
        high=lambda axis: end(axis, True),
    )


@loops("sampling loops", "RoiAlign", accepts=lambda task: are(task, FLOATS, 0, 1) and are(task, INTEGERS, 2))
def roi_align(task: Task) -> GeneratedKernel:
    """Each region of an image as a small image of a fixed size."""
    template = Template(task)
    x = template.operand(0)
    kind = ir.DataType.DOUBLE if x.c == "double" else ir.DataType.FLOAT
    half_pixel = task.attributes["coordinate_transformation_mode"] == "half_pixel"
    return template.fill(
        "loops/roi_align.c.jinja",
        c=x.c,
        scale=template.literal(task.attributes["spatial_scale"], kind),
        offset=template.literal(0.5 if half_pixel else 0.0, kind),
        half=template.literal(0.5, kind),
        whole=not half_pixel,
        samples=task.attributes["sampling_ratio"],
        greatest=task.attributes["mode"] == "max",
        height=x.shape[2],
        width=x.shape[3],
    )
