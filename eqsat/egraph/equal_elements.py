"""The one number that all elements of a constant equal, for the literals of patterns.

``Max(x, 0)`` means any constant of zeros. Whether elements are equal is determined once for each constant, and also for
expressions of constants that are too large to be computed during saturation.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import fold
from eqsat.ops.interval_arithmetic import keeps_numbers
from eqsat.ops.operators import has
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import attr
from eqsat.schema.types import Attrs, OpKey, TensorAttr

_FIRST = 64
"""Most constants differ in their first elements: the others are not read then."""


@dataclass(frozen=True, slots=True)
class ElementBits:
    """A number of an element type, by its bits."""

    dtype: ir.DataType
    bits: bytes

    @classmethod
    def of(cls, value: np.ndarray, dtype: ir.DataType) -> ElementBits:
        return cls(dtype, value.tobytes())

    def numpy(self) -> np.ndarray:
        """The number as an array without dimensions."""
        return np.frombuffer(self.bits, self.dtype.numpy()).reshape(())


def element_of(array: np.ndarray, dtype: ir.DataType) -> ElementBits | None:
    """The value of all elements of an array if they are equal to the last bit; None if they differ or are not
    numbers.
    """
    if not array.size or array.dtype == object:
        return None
    flat = np.ascontiguousarray(array).reshape(-1)
    bits = flat.view(np.uint8).reshape(flat.size, -1)
    if flat[0] != flat[0] or not (bits[:_FIRST] == bits[0]).all() or not (bits == bits[0]).all():
        return None
    return ElementBits.of(flat[:1], dtype)


def element_of_result(op: OpKey, attrs: Attrs, operands: Sequence[ElementBits | None]) -> ElementBits | None:
    """The value of all elements of an operator's result, from those of its constant operands."""
    if op == OpKey("", "ConstantOfShape"):
        value = attr(attrs, "value")
        if value is None:
            return ElementBits.of(np.zeros(1, np.float32), ir.DataType.FLOAT)
        return element_of(value.array, value.dtype) if isinstance(value, TensorAttr) else None
    if not has(op, Trait.ELEMENTWISE):
        return operands[0] if keeps_numbers(op) else None
    given = [o for o in operands if o is not None]
    if len(given) < len(operands) or attr(attrs, "axis") is not None:
        return None
    try:
        with np.errstate(all="ignore"):
            found = fold(op, attrs, [o.numpy() for o in given], 1)[0]
    except EqsatError:
        return None
    return None if found is None else element_of(np.asarray(found), ir.DataType.from_numpy(np.asarray(found).dtype))
