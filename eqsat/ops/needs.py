"""The needs of an operator, known before it is computed: the elements that it allocates, and its operations.

A few operators make large results from small operands: an Expand of one number, a product of two vectors, a window with
wide padding. Each declares a function that reads only shapes and parameters and takes microseconds; all others need at
most a few times their operands. Sizes are Python's integers, so that nothing overflows.
"""

from __future__ import annotations

from eqsat.ops.need import SLOW, GivenOperands, Need, size_of
from eqsat.ops.operators import has, operator
from eqsat.ops.traits import Trait
from eqsat.schema.types import Attributes, OpKey


def need_of(op: OpKey, attrs: Attributes, inputs: GivenOperands) -> Need:
    """The needs of an operator on these operands; for operators without a function here, their elements.

    Raises:
        Exception: The inputs do not fit together; evaluating them reports the reason.
    """
    found = operator(op).need
    if found is not None:
        return found(attrs, inputs)
    size = sum(size_of(x) for x in inputs)
    return Need(size, SLOW * size)


def is_parametric(op: OpKey) -> bool:
    """Whether a parameter decides the size of the result, even for small operands."""
    return has(op, Trait.PARAMETRIC)


def product_of_sizes(inputs: GivenOperands) -> int:
    """Upper bound of the results of broadcasting, products and lookups of these operands."""
    size = 1
    for x in inputs:
        if x is not None:
            size *= max(size_of(x), 1)
    return size
