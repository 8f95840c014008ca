"""Conversions between element types."""

from __future__ import annotations

from functools import cache

import numpy as np
import onnx
import onnx.numpy_helper
import onnx_ir as ir

from eqsat.ops import equal_axes, normal, undefined
from eqsat.ops.numpy_kernel import Fallback
from eqsat.ops.registry import declare
from eqsat.ops.sampling import elementwise as sample
from eqsat.ops.traits import BENDS, ELEMENTWISE, FIXED, MOVES, REARRANGES, SELECTS, SIZES
from eqsat.schema.types import Attributes

_FLOAT8 = frozenset(
    {ir.DataType.FLOAT8E4M3FN, ir.DataType.FLOAT8E4M3FNUZ, ir.DataType.FLOAT8E5M2, ir.DataType.FLOAT8E5M2FNUZ}
)


@cache
def numpy_dtype(code: int) -> np.dtype:
    """The numpy type (or that of ml_dtypes) of an ONNX element type."""
    return np.dtype(ir.DataType(code).numpy())


def cast(x: np.ndarray, to: int, saturate: bool = True, round_mode: str = "up") -> np.ndarray:
    """Convert to an ONNX element type; ``saturate`` clamps instead of overflowing, for float8 only."""
    if to == ir.DataType.STRING or x.dtype.kind in "OUS":
        raise Fallback
    target = numpy_dtype(to)
    if x.dtype == target:
        return x
    if to in _FLOAT8 and saturate:
        if x.dtype.kind != "f":
            x = x.astype(np.float32)
        return onnx.numpy_helper.saturate_cast(x, target)
    if to == ir.DataType.FLOAT8E8M0:
        return onnx.numpy_helper.to_float8e8m0(x, saturate, round_mode).astype(target)
    return x.astype(target)


def cast_kernel(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Convert the elements' type."""
    return cast(x, attrs["to"], bool(attrs.get("saturate", 1)), attrs.get("round_mode", "up"))


def cast_by_name(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 6 the type is given by name."""
    return cast(x, ir.DataType[str(attrs["to"]).upper()])


def cast_like(attrs: Attributes, x: np.ndarray, like: np.ndarray) -> np.ndarray:
    """Convert to the type of another array."""
    if like.dtype.kind in "OUS":
        raise Fallback
    return cast(x, ir.DataType.from_numpy(like.dtype), bool(attrs.get("saturate", 1)), attrs.get("round_mode", "up"))


def bit_cast(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """The same bits as another type of the same width."""
    target = numpy_dtype(attrs["to"])
    if x.dtype.kind in "OUS" or ir.DataType(attrs["to"]).bitwidth < 8 or target.itemsize != x.dtype.itemsize:
        raise Fallback
    return np.asarray(x, order="C").view(target)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Cast", numpy={6: cast_kernel, 1: cast_by_name},
    traits=ELEMENTWISE | SELECTS | BENDS | SIZES | REARRANGES | FIXED,
    normal_form=(normal.saturation,), sampling=sample.cast, undefined=undefined.cast)
declare("CastLike", numpy=cast_like, traits=ELEMENTWISE | SELECTS | SIZES, normal_form=(normal.saturation,),
    undefined=undefined.cast, together=equal_axes.alone)
declare("BitCast", numpy=bit_cast, traits=MOVES)
