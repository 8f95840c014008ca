"""Data on which the standard leaves an operator's result open; no conclusions are drawn from the results of an
implementation.

Each function here refuses such data for one kind of operators, and is a facet of their declarations.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import onnx_ir as ir

from eqsat.schema.dtypes import limits
from eqsat.schema.types import Attributes, OptionalArrays

OperandRequirement = Callable[[Attributes, OptionalArrays], None]
"""Takes attributes and operands; raises :class:`Undefined`."""


class Undefined(Exception):
    """The operator has no defined result on this data (an integer division by zero)."""


class Unrepresentable(Undefined):
    """A float is converted to an integer type that cannot hold it."""


class NotANumber(Undefined):
    """A NaN where the operator must return an integer: no rule is to blame for the result."""


def division(attributes: Attributes, inputs: OptionalArrays) -> None:
    """Integers are divided by zero, or the least one by -1."""
    dividend, divisor = inputs[0], inputs[1]
    assert divisor is not None and dividend is not None
    if divisor.dtype.kind in "iu" and np.any(divisor == 0):
        raise Undefined("an integer division by zero")
    if divisor.dtype.kind == "i" and np.any(divisor == -1) and np.any(dividend == np.iinfo(dividend.dtype).min):
        raise Undefined("an integer division that overflows")


def cast(attributes: Attributes, inputs: OptionalArrays) -> None:
    """A float becomes an integer that its type cannot hold."""
    source, to = inputs[0], attributes.get("to")
    assert source is not None
    target = ir.DataType(to) if isinstance(to, int) else None
    if target is None and len(inputs) > 1 and inputs[1] is not None:
        target = ir.DataType.from_numpy(inputs[1].dtype)
    if target is None or not target.is_integer() or source.dtype.kind != "f" or not source.size:
        return
    low, high = limits(target)
    wide = source.astype(np.float64)
    if not np.isfinite(wide).all() or wide.min() <= low - 1 or wide.max() >= high + 1:
        raise Unrepresentable("a float that the integer type cannot hold")


def quantization(attributes: Attributes, inputs: OptionalArrays) -> None:
    """The quantized value or the scale is not a number, or the scale is zero."""
    if any(v is not None and np.isnan(v).any() for v in inputs[:2]):
        raise NotANumber("a NaN to be quantized")
    _scales(inputs[1:2])


def requantization(attributes: Attributes, inputs: OptionalArrays) -> None:
    """A scale is zero."""
    _scales((inputs[1], inputs[3]))


def _scales(scales: OptionalArrays) -> None:
    if any(scale is not None and np.any(scale == 0) for scale in scales):
        raise Undefined("a scale of zero")
