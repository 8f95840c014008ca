"""The common part of the families of plain loops: they support any strides, any epilogue, and all element types.

They are the last resort for each operator, used when no faster family accepts the task: complete rather than fast, with
the innermost loop along memory where the operator allows it. They compute the same as the numpy kernels of the same
name. Sums of float32 are kept in double, so that the order of summation does not matter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

import numpy as np
import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.expressions.forms import INTEGERS
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import Family, GeneratedKernel, Task, View, Want, Wants
from eqsat.codegen.kernels.shared.families import register
from eqsat.codegen.loop_writer import is_scalar_epilogue
from eqsat.codegen.shape_arithmetic import elements, is_sizes
from eqsat.schema.dtypes import FLOATS
from eqsat.schema.types import OpKey

NUMBERS = FLOATS | INTEGERS
MICROSOFT = "com.microsoft"


def always(task: Task) -> bool:
    """Accepts every task."""
    return True


def dtype_of(task: Task, index: int) -> ir.DataType | None:
    """Element type of an input, None if it is absent."""
    found = task.inputs[index] if index < len(task.inputs) else None
    if found is None:
        return None
    if isinstance(found, View):
        return found.dtype
    return ir.DataType.INT64 if is_sizes(found) else ir.DataType.from_numpy(found.dtype)


def shape_of(task: Task, index: int) -> tuple[int, ...]:
    """Shape of an input that is present."""
    found = task.inputs[index]
    assert found is not None
    return found.shape


def is_typed(task: Task) -> bool:
    """Whether C has every element type of a task."""
    given = [dtype_of(task, i) for i in range(len(task.inputs))]
    made = [v.dtype for v in task.outputs if v is not None]
    return all(d is None or c_types.is_supported(d) for d in [*given, *made])


def are(task: Task, types: Iterable[ir.DataType], *inputs: int) -> bool:
    """Whether inputs (all by default) are absent or have one of some element types."""
    known = frozenset(types)
    which = inputs or range(len(task.inputs))
    return all((d := dtype_of(task, i)) is None or d in known for i in which)


def loops(
    name: str,
    *operators: str,
    domain: str = "",
    accepts: Callable[[Task], bool] = always,
    wants: Callable[[Task], Wants] | None = None,
    epilogue: bool = True,
    faster: Callable[[Task, Isa], GeneratedKernel | None] | None = None,
) -> Callable[[Callable[[Task], GeneratedKernel]], Callable[[Task], GeneratedKernel]]:
    """Registers the decorated generator as the loops of operators.

    Args:
        name: Name of the family, for reports.
        operators: Names of the operators that it computes.
        domain: Their domain.
        accepts: Whether it can do a task whose element types and epilogue C can write.
        wants: Its wants for the views.
        epilogue: Whether elementwise steps may follow.
        faster: Makes a kernel of vectors for some tasks, None for others.
    """

    def takes(task: Task) -> bool:
        if not is_typed(task) or (task.epilogue.steps and (not epilogue or task.outputs[0] is None)):
            return False
        return is_scalar_epilogue(task.epilogue) and accepts(task)

    def add(generate: Callable[[Task], GeneratedKernel]) -> Callable[[Task], GeneratedKernel]:
        def run(task: Task, isa: Isa) -> GeneratedKernel:
            if all(v is None or v.elements == 0 for v in task.outputs):
                return GeneratedKernel("", specialised=False)
            found = None if faster is None else faster(task, isa)
            return generate(task) if found is None else found

        keys = tuple(OpKey(domain, operator) for operator in operators)
        register(Family(name, keys, takes, run, wants or (lambda task: Wants())))
        return generate

    return add


def dense(*inputs: int, output: bool = False) -> Callable[[Task], Wants]:
    """Wants some inputs, and the output, row-major without gaps."""
    want = Want(strict=True, dense=True)

    def wants(task: Task) -> Wants:
        given = tuple(want if i in inputs else Want() for i in range(len(task.inputs)))
        return Wants(given, (want,) if output else ())

    return wants


def ints(array: np.ndarray | None) -> tuple[int, ...] | None:
    """Elements of a small constant, which may be free sizes."""
    return None if array is None else tuple(elements(array))
