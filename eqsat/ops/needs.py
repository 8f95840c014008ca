"""The needs of an operator, known before it is computed: the elements that it allocates, and its operations.

A few operators make much of little: an Expand of one number, a product of two vectors, a window in a sea of padding.
Each declares a function, which reads only shapes and parameters and costs microseconds; all others need no more
than some times their operands. Sizes are Python's integers, so that nothing overflows.
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
    """Whether a parameter sets the size, however small the operands are."""
    return has(op, Trait.PARAMETRIC)


def product_of_sizes(inputs: GivenOperands) -> int:
    """What broadcasting, products and lookups of these operands can make at most."""
    size = 1
    for x in inputs:
        if x is not None:
            size *= max(size_of(x), 1)
    return size
