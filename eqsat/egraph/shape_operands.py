"""Shapes that a rule computes from free sizes, as the constants that ``Reshape`` and ``Expand`` read.

A constant holds numbers. Both operators can refer to the shape of their operand instead: ``Reshape`` copies a dimension
where it reads 0 and computes one where it reads -1, ``Expand`` keeps a dimension where it reads 1. If that expresses
the shape, the rule applies for every size; if not, it does not apply.
"""

from __future__ import annotations

from collections.abc import Sequence

from eqsat.rules.evaluation import dimensions
from eqsat.rules.known_facts import SymbolicDim
from eqsat.schema.size import Size
from eqsat.schema.size_questions import may_be_zero
from eqsat.schema.types import OpKey, TensorType

RESHAPE, EXPAND = OpKey("", "Reshape"), OpKey("", "Expand")


def shape_operand(op: OpKey, wanted: Sequence[object], operand: TensorType | None) -> list[int] | None:
    """The constant that stands for a shape; None if there is none.

    Args:
        op: The operator that reads it.
        wanted: The shape: numbers, free sizes, or what is neither.
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


def _may_be_empty(size: object) -> bool:
    return isinstance(size, SymbolicDim) or (isinstance(size, Size) and may_be_zero(size))
