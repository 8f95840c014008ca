"""Element types in C: the type that holds an element, the type to compute in, and literals.

A type that C11 lacks is stored as an unsigned integer of its size (half precision floats, 8-bit floats) or in one byte
per element (4-bit and 2-bit types, as in numpy). Helper functions of the prelude convert it.
"""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import onnx_ir as ir

_STORAGE = {
    ir.DataType.FLOAT: "float",
    ir.DataType.DOUBLE: "double",
    ir.DataType.INT8: "int8_t",
    ir.DataType.INT16: "int16_t",
    ir.DataType.INT32: "int32_t",
    ir.DataType.INT64: "int64_t",
    ir.DataType.UINT8: "uint8_t",
    ir.DataType.UINT16: "uint16_t",
    ir.DataType.UINT32: "uint32_t",
    ir.DataType.UINT64: "uint64_t",
    ir.DataType.BOOL: "uint8_t",
    ir.DataType.FLOAT16: "uint16_t",
    ir.DataType.BFLOAT16: "uint16_t",
    ir.DataType.FLOAT8E4M3FN: "uint8_t",
    ir.DataType.FLOAT8E4M3FNUZ: "uint8_t",
    ir.DataType.FLOAT8E5M2: "uint8_t",
    ir.DataType.FLOAT8E5M2FNUZ: "uint8_t",
    ir.DataType.INT4: "int8_t",
    ir.DataType.UINT4: "uint8_t",
    ir.DataType.INT2: "int8_t",
    ir.DataType.UINT2: "uint8_t",
}
_SIZES = {"float": 4, "double": 8} | {f"{u}int{bits}_t": bits // 8 for u in ("", "u") for bits in (8, 16, 32, 64)}
_COMPUTED = {
    ir.DataType.FLOAT16: "f16",
    ir.DataType.BFLOAT16: "bf16",
    ir.DataType.FLOAT8E4M3FN: "f8e4m3fn",
    ir.DataType.FLOAT8E4M3FNUZ: "f8e4m3fnuz",
    ir.DataType.FLOAT8E5M2: "f8e5m2",
    ir.DataType.FLOAT8E5M2FNUZ: "f8e5m2fnuz",
}
HALVES = frozenset({ir.DataType.FLOAT16, ir.DataType.BFLOAT16})
"""Floats of half precision; see :mod:`eqsat.codegen.half_precision`."""


def is_supported(dtype: ir.DataType) -> bool:
    """Whether C code can hold tensors of this type."""
    return dtype in _STORAGE


def storage(dtype: ir.DataType) -> str:
    """C type of an element in memory."""
    return _STORAGE[dtype]


def size(dtype: ir.DataType) -> int:
    """Bytes of an element in memory."""
    return _SIZES[_STORAGE[dtype]]


def converted(dtype: ir.DataType) -> str | None:
    """The type's part of helper names if it is computed in ``float`` (``f16`` for ``f16_to_float``); otherwise None."""
    return _COMPUTED.get(dtype)


def computed(dtype: ir.DataType) -> str:
    """C type to compute in: ``float`` for the small floats, otherwise the type of the element in memory."""
    return "float" if dtype in _COMPUTED else _STORAGE[dtype]


def as_stored(array: np.ndarray) -> np.ndarray:
    """An array as it lies in memory: dense, little endian, small types as the integers that hold them."""
    dense = np.ascontiguousarray(array)
    if (
        dense.dtype.kind == "V"
        or "float8" in dense.dtype.name
        or dense.dtype.name in ("int4", "uint4", "int2", "uint2")
    ):
        name = dense.dtype.name
        if "float" in name:
            return dense.view(np.uint16 if dense.dtype.itemsize == 2 else np.uint8)
        return dense.astype(np.uint8 if name.startswith("u") else np.int8)
    if dense.dtype == np.float16:
        return dense.view(np.uint16)
    if dense.dtype == np.bool_:
        return dense.view(np.uint8)
    return dense.astype(dense.dtype.newbyteorder("<"), copy=False)


def c_type(array: np.ndarray) -> str:
    """C type of the elements of a stored array."""
    kind = {"f": {4: "float", 8: "double"}}.get(array.dtype.kind)
    if kind is not None:
        return kind[array.dtype.itemsize]
    return f"{'u' if array.dtype.kind in 'ub' else ''}int{8 * array.dtype.itemsize}_t"


def literal(value: Any, dtype: ir.DataType) -> str:
    """A C expression for one value in the type that ``dtype`` is computed in, exact to the bit."""
    c = computed(dtype)
    if c in ("float", "double"):
        number, f = float(value), "f" if c == "float" else ""
        if math.isnan(number):
            return "NAN" if f else "((double)NAN)"
        if math.isinf(number):
            sign = "-" if number < 0 else ""
            return f"({sign}INFINITY)" if f else f"({sign}(double)INFINITY)"
        text = f"{number:.9g}" if f else f"{number:.17g}"
        if "." not in text and "e" not in text:
            text += ".0"
        return f"({text}{f})" if text.startswith("-") else f"{text}{f}"
    number = int(value)
    if c == "int64_t":
        return "INT64_MIN" if number == -(1 << 63) else f"INT64_C({number})"
    if c == "uint64_t":
        return f"UINT64_C({number})"
    if c == "uint32_t":
        return f"UINT32_C({number})"
    if c == "int32_t" and number == -(1 << 31):
        return "INT32_MIN"
    return f"({number})" if number < 0 else str(number)
