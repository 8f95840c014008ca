"""Sizes that must be equal, or broadcast, and are not known to be: the program compares them, and they become one size.

Kernels assume that axes which belong together have one size. Where types do not say so (the elements that two masks
select are added), the program computes the size that they have in common, or ends with a status. Operands become views
of that size, in which an axis of one element repeats.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import numpy as np

from eqsat.codegen.expressions.expression_table import is_elementwise
from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import is_sizes
from eqsat.codegen.shapes import operand_type
from eqsat.ops.checks.check import CheckedNode
from eqsat.ops.equal_axes import Together, alone, broadcasting
from eqsat.ops.operators import operator
from eqsat.schema.size_questions import any_free
from eqsat.schema.types import Attrs, OpKey

Common = Callable[[Sequence[int], bool], int]
"""Makes the size that several sizes are at run time, or that they broadcast to."""
Fitted = Callable[[ProgramTensor, tuple[int, ...]], ProgramTensor]
"""Makes a view of another shape."""


def agreeing(
    op: OpKey, attrs: Attrs, operands: list[ProgramOperand | None], common: Common, fitted: Fitted
) -> list[ProgramOperand | None]:
    """The operands of an operator, with one size where axes belong together.

    Args:
        op: The operator.
        attrs: All of its attributes.
        operands: Of the operator.
        common: Makes sizes.
        fitted: Makes views.
    """
    shapes = [None if x is None else list(x.shape) for x in operands]
    for group in _together(op, attrs, operands):
        sizes = [_size(shapes, place) for place in group.axes]
        said = [] if group.size is None else [group.size]
        distinct = list(dict.fromkeys(n for n in [*sizes, *said] if not (group.repeats and n == 1)))
        if len(distinct) < 2 or not any_free(distinct):
            continue
        size = common(distinct, group.repeats)
        for (number, axis), n in zip(group.axes, sizes, strict=True):
            shape = shapes[number]
            if shape is not None and not (group.repeats and n == 1):
                shape[axis] = size
    return [
        fitted(x, tuple(shape)) if isinstance(x, ProgramTensor) and shape is not None and tuple(shape) != x.shape else x
        for x, shape in zip(operands, shapes, strict=True)
    ]


def _size(shapes: Sequence[list[int] | None], place: tuple[int, int]) -> int:
    shape = shapes[place[0]]
    assert shape is not None
    return shape[place[1]]


def _together(op: OpKey, attrs: Attrs, operands: Sequence[ProgramOperand | None]) -> Iterator[Together]:
    """Axes that belong together."""
    known = operator(op).together
    rule = known or (broadcasting if is_elementwise(op) else alone)
    values = [x if isinstance(x, np.ndarray) and not is_sizes(x) else None for x in operands]
    yield from rule(CheckedNode(op, attrs, [operand_type(x) for x in operands], values, ()))
