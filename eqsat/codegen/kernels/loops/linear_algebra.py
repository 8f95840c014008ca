"""Determinants and inverses of square matrices, by elimination with pivots; mirrors ``eqsat/ops/families/matmul.py``.

Elimination runs in double whatever the element type is. The inverse of a singular matrix has elements that are not
finite, as in ONNX Runtime; the numpy executor refuses it.
"""

from __future__ import annotations

from eqsat.codegen.kernel import GeneratedKernel, Task
from eqsat.codegen.kernel_templates import Template
from eqsat.codegen.kernels.loops.family import MICROSOFT, are, loops
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.size_questions import greatest


def _eliminated(task: Task, *, inverts: bool) -> GeneratedKernel:
    template = Template(task)
    x = template.operand(0)
    n = x.shape[-1]
    width = 2 * n if inverts else n
    return template.fill(
        "loops/eliminate.c.jinja",
        n=n,
        width=width,
        inverts=inverts,
        element=lambda i: x.load(*i, "r", "k"),
        store=lambda value, i: template.result().store(value, *i, *(("r", "k") if inverts else ())),
        scratch=8 * greatest(n) * greatest(width),
    )


@loops("elimination loops", "Det", accepts=lambda task: are(task, FLOATS))
def determinant(task: Task) -> GeneratedKernel:
    """The product of the pivots of each matrix."""
    return _eliminated(task, inverts=False)


@loops("elimination loops", "Inverse", domain=MICROSOFT, accepts=lambda task: are(task, FLOATS))
def inverse(task: Task) -> GeneratedKernel:
    """The inverse of each matrix."""
    return _eliminated(task, inverts=True)
