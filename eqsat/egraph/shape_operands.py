"""Shapes of free sizes, which a rule or the model computes, as the constants that ``Reshape`` and ``Expand`` read.

A constant holds numbers. Both operators can refer to the shape of their operand instead: ``Reshape`` copies a dimension
where it reads 0 and computes one where it reads -1, ``Expand`` keeps a dimension where it reads 1. If that expresses
the shape, the rule applies for every size; if not, it does not apply. Ends of slices count from the end of an axis.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeGuard

import numpy as np

from eqsat.rules.evaluation import dimensions
from eqsat.rules.known_facts import SymbolicDim
from eqsat.schema.size import Size, closer_bounds
from eqsat.schema.size_questions import may_be_zero
from eqsat.schema.types import OpKey, TensorType

END = 2**63 - 1
"""After the last element of any axis; the largest int32 where ends are of that type."""
RESHAPE, EXPAND, SHAPE, SLICE, GATHER = (OpKey("", name) for name in ("Reshape", "Expand", "Shape", "Slice", "Gather"))


def shape_operand(op: OpKey, wanted: Sequence[object], operand: TensorType | None) -> list[int] | None:
    """The constant that expresses a shape; None if there is none.

    Args:
        op: The operator that reads it.
        wanted: The shape: numbers, free sizes, or opaque dimensions.
        operand: The tensor that the operator reads.
    """
    if operand is None or operand.shape is None or op not in (RESHAPE, EXPAND):
        return None
    given = list(dimensions(operand))
    if op == EXPAND:
        aligned = [1] * (len(wanted) - len(given)) + given
        if len(aligned) > len(wanted):
            return None
        found = [d if isinstance(d, int) else 1 if d == g else -1 for d, g in zip(wanted, aligned, strict=True)]
        return None if -1 in found else found
    found = []
    for i, d in enumerate(wanted):
        copies = i < len(given) and d == given[i]
        found.append(d if isinstance(d, int) else 0 if copies else -1)
    if found.count(-1) > 1 or any(isinstance(d, int) and d <= 0 for d in wanted):
        return None
    if -1 in found and any(n == 0 and _may_be_empty(d) for n, d in zip(found, given, strict=False)):
        # Nothing can be computed from an empty tensor.
        return None
    return found


def literal_operands(
    op: OpKey, operand: TensorType, values: Sequence[np.ndarray | None], result: TensorType | None
) -> dict[int, list[int]]:
    """Constants that replace operands with free sizes, by position; empty if some operand has none.

    Args:
        op: The operator.
        operand: The tensor that it reads.
        values: Known contents of its operands.
        result: The type of its result.
    """
    if op in (RESHAPE, EXPAND) and result is not None and result.shape is not None:
        found = shape_operand(op, dimensions(result), operand)
        return {} if found is None else {1: found}
    return _literal_ends(operand, values) if op == SLICE and operand.shape is not None else {}


def _literal_ends(operand: TensorType, values: Sequence[np.ndarray | None]) -> dict[int, list[int]]:
    """The begin and end of a slice, counted from the end of the axis."""
    starts, ends, axes = (
        v.reshape(-1).tolist() if v is not None else None for v in (*values[1:3], *values[3:4], None)[:3]
    )
    given = dimensions(operand)
    axes = list(range(len(given))) if axes is None and len(values) < 4 else axes
    if starts is None or ends is None or axes is None or not all(is_whole(a) for a in axes):
        return {}
    sizes = [given[a] for a in axes]
    found = {i: [_from_end(x, n) for x, n in zip(xs, sizes, strict=False)] for i, xs in ((1, starts), (2, ends))}
    if any(x is None for xs in found.values() for x in xs):
        return {}
    return {i: [x for x in xs if x is not None] for i, xs in found.items()}


def _from_end(at: object, n: object) -> int | None:
    """A position on an axis of n elements as a number; None if it is not the same number for all sizes."""
    if is_whole(at):
        return at
    if not isinstance(at, Size) or not isinstance(n, int | Size):
        return None
    from_end = at - n
    # Position -k is the same only where there are k elements.
    is_number = is_whole(from_end)
    return (END if from_end >= 0 else from_end if closer_bounds(n)[0] >= -from_end else None) if is_number else None


def is_whole(value: object) -> TypeGuard[int]:
    """Whether an element is a number."""
    return isinstance(value, int) and not isinstance(value, Size | bool)


def _may_be_empty(size: object) -> bool:
    return isinstance(size, SymbolicDim) or (isinstance(size, Size) and may_be_zero(size))
