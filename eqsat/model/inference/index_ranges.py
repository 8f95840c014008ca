"""The greatest index that a model computes from sizes: an axis that is indexed has to be longer.

A decoder takes rows of a table of positions, and entries of a mask, at indices that count from 0 to a size.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import reduce

import numpy as np
import onnx_ir as ir

from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import op_key
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.size import Size, Undecided
from eqsat.schema.size_choices import largest
from eqsat.schema.size_questions import as_dim

_KEY = "eqsat.size_values"
_MOST_ELEMENTS = 4
_DEEPEST = 32


def keep_elements(value: ir.Value, elements: np.ndarray | None) -> None:
    """Stores the known elements with a value, if they are few and are sizes or other whole numbers."""
    value.meta.pop(_KEY, None)
    if elements is not None and 0 < elements.size <= _MOST_ELEMENTS and elements.dtype.kind in "iuO":
        found = elements.reshape(-1).tolist()
        if all(isinstance(x, int | Size) and not isinstance(x, bool) for x in found):
            value.meta[_KEY] = tuple(f"{x:model}" if isinstance(x, Size) else x for x in found)


def greatest_index(value: ir.Value, free: FreeSizes) -> str | None:
    """The greatest element of a tensor of indices as an expression; None if it is unknown or an index may be negative.

    Args:
        value: A tensor of a model with types.
        free: The symbols of the model's inputs.
    """
    try:
        found = _greatest(value, free, _DEEPEST)
    except Undecided:
        return None
    return None if found is None else str(as_dim(found))


def _greatest(value: ir.Value, free: FreeSizes, depth: int) -> int | None:
    known = _elements(value)
    if known:
        return reduce(largest, [size_of(d, free) for d in known])
    node = value.producer()
    if node is None or node.domain or not depth:
        return None
    operands = [v for v in node.inputs if v is not None]
    if node.op_type == "Range" and len(operands) == 3 and _elements(operands[2]) == (1,):
        limit = _elements(operands[1])
        return size_of(limit[0], free) - 1 if len(limit) == 1 else None
    if node.op_type == "Expand" or has(op_key(node), Trait.REARRANGES):
        return _greatest(operands[0], free, depth - 1)
    combine = _COMBINED.get(node.op_type)
    if combine is None:
        return None
    found = [_greatest(v, free, depth - 1) for v in operands]
    return None if any(n is None for n in found) else reduce(combine, [n for n in found if n is not None])


_COMBINED: Mapping[str, Callable[[int, int], int]] = {
    "Add": lambda a, b: a + b,
    "Concat": largest,
    "Mul": lambda a, b: math.prod((a, b)),
}


def _elements(value: ir.Value) -> Sequence[int | str]:
    """The elements of a small tensor as numbers and expressions; empty if they are unknown or one is negative."""
    tensor = ir.convenience.get_const_tensor(value)
    if tensor is not None:
        if not tensor.dtype.is_integer() or not 0 < tensor.size <= _MOST_ELEMENTS:
            return ()
        numbers = tuple(int(n) for n in tensor.numpy().reshape(-1))
        return numbers if min(numbers) >= 0 else ()
    known = value.meta.get(_KEY, ())
    return () if any(isinstance(d, int) and d < 0 for d in known) else known
