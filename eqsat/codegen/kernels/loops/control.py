"""The layout that nodes of control flow require of their operands: bodies can read them as rows.

Their C is not a kernel but calls of kernels; :mod:`eqsat.codegen.control.c_text` writes it.
"""

from __future__ import annotations

from eqsat.codegen.control.control_node import CONTROL
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, Want, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.ops.operators import all_with
from eqsat.ops.traits import Trait

_ROWS = Want(strict=True, dense=True)


def _wants(task: Task) -> Wants:
    return Wants((_ROWS,) * len(task.inputs), (_ROWS,) * len(task.outputs))


def _generate(task: Task, isa: Isa) -> GeneratedKernel:
    raise AssertionError("calls of kernels are written where nodes of control flow are, and nobody asks for a kernel")


FAMILY = register(
    Family(
        "control flow",
        all_with(Trait.CONTROL),
        lambda task: CONTROL in task.attributes and not task.epilogue.steps,
        _generate,
        _wants,
    ),
    is_kernel=False,
)
