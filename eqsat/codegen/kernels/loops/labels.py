"""Labels that belong to numbers, found by bisection; mirrors ``eqsat/ops/families/features.py``."""

from __future__ import annotations

import numpy as np

from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import are, loops
from eqsat.ops.families.features import label_table
from eqsat.ops.families.maps import ML
from eqsat.schema.dtypes import FLOATS


def _fits(task: Task) -> bool:
    return are(task, FLOATS | INTEGERS, 0) and label_table(task.attributes) is not None


@loops("bisection", "LabelEncoder", domain=ML, accepts=_fits)
def label_encoder(task: Task) -> GeneratedKernel:
    """The value of the key that an element is equal to."""
    template, found = Template(task), label_table(task.attributes)
    assert found is not None
    keys, values, default = found
    has_nan = keys.dtype.kind == "f" and bool(np.isnan(keys[-1]))
    return template.fill(
        "loops/labels.c.jinja",
        keys=template.table(keys[:-1] if has_nan else keys),
        values=template.table(np.append(values, default)),
        count=len(keys) - has_nan,
        missing=len(keys) - (1 if has_nan else 0),
        other=len(keys),
        has_nan=has_nan,
    )
