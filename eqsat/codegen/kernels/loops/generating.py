"""Elements that follow from their position, and shapes as values; mirrors ``eqsat/ops/families/shaping.py``."""

from __future__ import annotations

import numpy as np
import onnx_ir as ir

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template, only
from eqsat.codegen.kernels.loops.family import MICROSOFT, NUMBERS, are, loops, shape_of
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_choices import smallest


def _known(template: Template, value: np.ndarray) -> GeneratedKernel:
    """An output whose value is known."""
    y = template.result()
    return template.fill("loops/generate.c.jinja", kind="value", value=template.table(value).broadcast(y.shape))


@loops("shapes", "Shape")
def shape(task: Task) -> GeneratedKernel:
    """The shape of the operand, or a slice of it."""
    dims = shape_of(task, 0)[task.attributes.get("start", 0) : task.attributes.get("end")]
    return _known(Template(task), np.array(dims, np.int64))


@loops("shapes", "Size")
def size(task: Task) -> GeneratedKernel:
    """The number of elements."""
    return _known(Template(task), np.array(int(np.prod(shape_of(task, 0), dtype=np.int64)), np.int64))


@loops("constant tensors", "ConstantOfShape")
def constant_of_shape(task: Task) -> GeneratedKernel:
    """One value everywhere, zero in float32 by default."""
    value = task.attributes.get("value")
    return _known(Template(task), np.zeros((), np.float32) if value is None else np.asarray(value).reshape(-1)[0:1])


@loops("diagonals", "EyeLike", accepts=lambda task: task.epilogue.dtype in NUMBERS | {ir.DataType.BOOL})
def eye_like(task: Task) -> GeneratedKernel:
    """Ones on a diagonal."""
    template = Template(task)
    rows, columns = template.result().shape
    row, column = max(-task.attributes["k"], 0), max(task.attributes["k"], 0)
    ones = smallest(rows - row, columns - column)
    return template.fill("loops/generate.c.jinja", kind="EyeLike", row=row, column=column, ones=ones)


@loops("triangles", "Trilu")
@loops("triangles", "Trilu", domain=MICROSOFT)
def trilu(task: Task) -> GeneratedKernel:
    """The upper or lower triangle of the last two axes."""
    template = Template(task)
    shape = template.result().shape
    # The bits of every type's zero are zero.
    return template.fill(
        "loops/triangles.c.jinja",
        specialised=True,
        k=only(template.x[1]),
        upper=bool(task.attributes["upper"]),
        bits=not task.epilogue.steps,
        rows=shape[-2],
        columns=shape[-1],
        lines=(*shape[:-1], 1),
    )


@loops("ranges", "Range", accepts=lambda task: are(task, NUMBERS) and task.attributes.get("stash_type", 1) == 1)
def number_range(task: Task) -> GeneratedKernel:
    """From a start in equal steps; how many there are is known."""
    template = Template(task)
    (start, delta), y = template.operands(0, 2), template.result()
    return template.fill(
        "loops/generate.c.jinja", kind="Range", start=only(start), delta=only(delta), real=y.value_dtype in FLOATS
    )


def _identity(task: Task) -> bool:
    """Whether a dropout is an identity: where training is not requested."""
    training = task.constant(2)
    return not task.has(2) or (training is not None and not training.reshape(-1)[0])


@loops("dropout as an identity", "Dropout", accepts=lambda task: task.outputs[0] is not None and _identity(task))
def dropout(task: Task) -> GeneratedKernel:
    """The operand, and a mask of ones."""
    template = Template(task)
    return template.fill("loops/generate.c.jinja", kind="value", value=template.x[0])
