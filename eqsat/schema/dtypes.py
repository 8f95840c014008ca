"""Element types by every name people use for them."""

from __future__ import annotations

import math
from functools import cache

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.errors import ModelError
from eqsat.schema.opset import did_you_mean

DTypeLike = str | np.dtype | type | ir.DataType
"""``"float32"``, ``np.float32``, ``np.dtype("float32")``, ``ir.DataType.FLOAT``, ``"bfloat16"``, ``"int4"``."""

_BY_NAME = {d.name.lower(): d for d in ir.DataType if d != ir.DataType.UNDEFINED} | {
    "float32": ir.DataType.FLOAT,
    "float64": ir.DataType.DOUBLE,
    "str": ir.DataType.STRING,
}

BYTES = (ir.DataType.INT8, ir.DataType.UINT8)
"""The element types of quantized tensors."""
FLOATS = frozenset({ir.DataType.FLOAT, ir.DataType.DOUBLE, ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""The element types in which operators compute with real numbers; constants of them are computed in a wider one."""
FLOAT8 = frozenset(d for d in ir.DataType if d.name.startswith("FLOAT8"))
"""The element types for which operators say whether numbers that are too large become the largest."""


def to_dtype(dtype: DTypeLike, *, place: str = "") -> ir.DataType:
    """The ONNX element type of that name.

    Raises:
        ModelError: There is no such type.
    """
    if isinstance(dtype, ir.DataType):
        return dtype
    if isinstance(dtype, str) and dtype.lower() in _BY_NAME:
        return _BY_NAME[dtype.lower()]
    try:
        as_numpy = np.dtype(dtype)
        if as_numpy.kind in "OUS":
            return ir.DataType.STRING
        return ir.DataType.from_numpy(as_numpy)
    except TypeError as error:
        hint = did_you_mean(dtype, _BY_NAME) if isinstance(dtype, str) else "such as 'float32' or np.float32"
        raise ModelError("an element type of ONNX is required", place=place, actual=repr(dtype), hint=hint) from error


def dtype_name(dtype: ir.DataType) -> str:
    """The usual name: ``float32``, not ONNX's ``float``."""
    return {ir.DataType.FLOAT: "float32", ir.DataType.DOUBLE: "float64"}.get(dtype, dtype.name.lower())


@cache
def integer_limits(dtype: ir.DataType) -> tuple[int, int]:
    """Least and greatest value of a type of integers."""
    width = dtype.bitwidth
    return (-(1 << (width - 1)), (1 << (width - 1)) - 1) if dtype.is_signed() else (0, (1 << width) - 1)


@cache
def limits(dtype: ir.DataType) -> tuple[int | float, int | float]:
    """Least and greatest finite value.

    Raises:
        ValueError: The type has no order (strings, complex numbers).
    """
    if dtype == ir.DataType.BOOL:
        return 0, 1
    if dtype.is_integer():
        return integer_limits(dtype)
    if not dtype.is_floating_point():
        raise ValueError(f"{dtype_name(dtype)} has no lowest and highest value")
    info = ml_dtypes.finfo(dtype.numpy())
    low, high = float(info.min), float(info.max)
    assert math.isfinite(low) and math.isfinite(high)
    return low, high
