"""Support vector machines; mirrors ``eqsat/ops/families/support_vectors.py``. No kernel value is kept for later."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, loops, shape_of
from eqsat.ops.families.maps import ML
from eqsat.ops.families.support_vectors import LEAST, Machine, is_plain, machine
from eqsat.ops.scores import labels_of
from eqsat.schema.dtypes import FLOATS


def _fits(task: Task) -> bool:
    if not is_plain(task.attributes) or not are(task, FLOATS | INTEGERS, 0):
        return False
    made = machine(task.attributes)
    return made is not None and shape_of(task, 0)[-1] == made.vectors.shape[1]


def _filled(template: Template, made: Machine, rows: int, **values: Any) -> GeneratedKernel:
    x = template.operand(0)
    c = "double" if x.c == "double" else "float"
    kind = np.dtype(np.float64 if c == "double" else np.float32)
    f = "" if c == "double" else "f"

    def number(value: float) -> str:
        return c_types.literal(value, x.dtype if x.c == c else ir.DataType.FLOAT)

    return template.fill(
        "loops/support_vectors.c.jinja",
        c=c,
        f=f,
        rows=rows,
        features=made.vectors.shape[1],
        vectors=template.table(made.vectors.astype(kind)).operand.name,
        coefficients=template.table(made.coefficients.astype(kind)).operand.name,
        count=len(made.vectors),
        shape=made.kernel,
        gamma=number(made.gamma),
        offset=number(made.offset),
        degree=int(made.degree) if made.degree == int(made.degree) and 0 < made.degree <= 8 else None,
        power=number(made.degree),
        number=number,
        feature=lambda row, k: f"({c}){x.load(*((row, k) if x.rank == 2 else (k,)))}",
        **values,
    )


@loops("support vectors", "SVMRegressor", domain=ML, accepts=_fits)
def regressor(task: Task) -> GeneratedKernel:
    """The weighted sum of kernels."""
    template, made = Template(task), machine(task.attributes)
    assert made is not None
    rho = c_types.literal(made.rho[0], ir.DataType.FLOAT)
    one_class = bool(task.attributes["one_class"])
    return _filled(template, made, template.result().shape[0], classes=1, rho=rho, one_class=one_class)


@loops("support vectors", "SVMClassifier", domain=ML, accepts=_fits, epilogue=False)
def classifier(task: Task) -> GeneratedKernel:
    """A vote for each pair of classes, and the decisions or probabilities."""
    template, made = Template(task), machine(task.attributes)
    assert made is not None
    rows = next(v for v in task.outputs if v is not None).shape[0]
    labels = labels_of(task.attributes, "classlabels_ints") or tuple(range(len(made.per_class)))
    classes, kind = len(made.per_class), np.float64 if template.operand(0).c == "double" else np.float32
    return _filled(
        template,
        made,
        rows,
        classes=classes,
        pairs=len(made.pairs()),
        starts=template.table(np.cumsum([0, *made.per_class]).astype(np.int32)).operand.name,
        rho=template.table(made.rho.astype(kind)).operand.name,
        pair_a=template.table(made.pair_a.astype(kind)).operand.name if made.pair_a.size and task.outputs[1] else None,
        pair_b=template.table(made.pair_b.astype(kind)).operand.name if made.pair_b.size and task.outputs[1] else None,
        labels=template.table(np.array(labels, np.int64)).operand.name if task.outputs[0] else None,
        least=LEAST,
        most=max(100, classes),
        scratch=(len(made.pairs()) + 2 * classes * classes + 3 * classes) * np.dtype(kind).itemsize,
    )
