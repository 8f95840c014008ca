"""Linear quantization: between real numbers and integers with scale and zero point.

Rounding is half to even and results saturate, as ONNX specifies; divisions and products are single float32
operations in the order of ONNX Runtime, so that the integers agree with it to the bit.

No model has a scale that is wider than float32. Such a scale comes from a computation over the reals (``ops/wide.py``,
``verify/type_ranges.py``), which rounds nothing to float32, even if an attribute requires a type.
"""

from __future__ import annotations

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import counters as count
from eqsat.ops import equal_axes, normal, undefined
from eqsat.ops.checks import layers
from eqsat.ops.families.casting import cast, numpy_dtype
from eqsat.ops.numpy_kernel import HALF_TYPES, at_least_single
from eqsat.ops.registry import declare
from eqsat.ops.sampling import quantizing as sample
from eqsat.ops.traits import BENDS, CONVERTS
from eqsat.schema.types import Attributes

_SMALL = {
    np.dtype(ml_dtypes.int4): (-8, 7),
    np.dtype(ml_dtypes.uint4): (0, 15),
    np.dtype(ml_dtypes.int2): (-2, 1),
    np.dtype(ml_dtypes.uint2): (0, 3),
}


def integer_range(dtype: np.dtype) -> tuple[int, int] | None:
    """Least and greatest integer of a type, None for types that are not integers."""
    if dtype in _SMALL:
        return _SMALL[dtype]
    if dtype.kind not in "iu":
        return None
    info = np.iinfo(dtype)
    return int(info.min), int(info.max)


def spread(v: np.ndarray, shape: tuple[int, ...], axis: int, block: int = 0) -> np.ndarray:
    """Scales or zero points shaped to broadcast: one for all, one for each index of ``axis``, or one a block.

    Raises:
        ValueError: They do not fit the shape.
    """
    if v.size == 1 and (v.ndim < 2 or not block):
        return v.reshape(())
    if not -len(shape) <= axis < len(shape):
        raise ValueError(f"axis {axis} is outside of an array of rank {len(shape)}")
    axis %= len(shape)
    if not block:
        if v.ndim != 1 or v.size != shape[axis]:
            raise ValueError(f"{v.shape} scales do not fit axis {axis} of length {shape[axis]}")
        return v.reshape(-1, *(1,) * (len(shape) - 1 - axis))
    wide = np.repeat(v, block, axis)
    wide = wide[(slice(None),) * axis + (slice(0, shape[axis]),)]
    if wide.shape != shape:
        raise ValueError(f"{v.shape} scales in blocks of {block} along axis {axis} do not fit {shape}")
    return wide


def saturate(v: np.ndarray, zero: np.ndarray | np.floating | float, dtype: np.dtype) -> np.ndarray:
    """Round half to even, add the zero point, clamp, convert. Overwrites ``v``, which is floating-point."""
    limits = integer_range(dtype)
    assert limits is not None
    v = np.asarray(v)  # numpy computes numbers, not arrays, from arrays without dimensions
    np.rint(v, out=v)
    if isinstance(zero, np.ndarray) or zero:
        v += zero
    np.clip(v, limits[0], limits[1], out=v)
    return v.astype(np.int8).astype(dtype) if dtype in _SMALL else v.astype(dtype)


def quantize_linear(attrs: Attributes, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None) -> np.ndarray:
    """``saturate(round(x / scale) + zero)``."""
    output = attrs.get("output_dtype", 0)
    dtype = zero.dtype if zero is not None else numpy_dtype(output) if output else np.dtype(np.uint8)
    if zero is not None and output and numpy_dtype(output) != dtype:
        raise ValueError(f"output_dtype {numpy_dtype(output)} differs from the zero point's type {dtype}")
    axis, block = attrs.get("axis", 1), attrs.get("block_size", 0)
    precision = _stated(attrs.get("precision", 0), scale)
    divisor = spread(scale, x.shape, axis, block).astype(precision, copy=False)
    v = np.asarray(x.astype(precision, copy=False) / divisor)
    if v.dtype in HALF_TYPES:
        v = v.astype(np.float32)
    if integer_range(dtype) is not None:
        offset = 0.0 if zero is None else spread(zero, x.shape, axis, block).astype(np.float32)
        return saturate(v, offset, dtype)
    if zero is not None:
        v = v + spread(zero, x.shape, axis, block).astype(np.float32)
    return cast(v, ir.DataType.from_numpy(dtype), bool(attrs.get("saturate", 1)))


def dequantize_linear(
    attrs: Attributes, x: np.ndarray, scale: np.ndarray, zero: np.ndarray | None = None
) -> np.ndarray:
    """``(x - zero) * scale``."""
    axis, block = attrs.get("axis", 1), attrs.get("block_size", 0)
    if zero is not None and zero.dtype != x.dtype:
        raise ValueError(f"zero point of type {zero.dtype} differs from the input's {x.dtype}")
    factor = spread(scale, x.shape, axis, block)
    output = _stated(attrs.get("output_dtype", 0), scale)
    single = at_least_single(scale)
    if zero is None:
        v = x.astype(single)
    elif x.dtype.itemsize <= 2:
        v = x.astype(single)
        v -= spread(zero, x.shape, axis, block).astype(single)
    else:
        v = (x.astype(np.int64) - spread(zero, x.shape, axis, block)).astype(single)
    v = np.asarray(v)
    v *= factor.astype(single, copy=False)
    return v.astype(output, copy=False)


def _stated(code: int, scale: np.ndarray) -> np.dtype:
    """The type that an attribute gives, otherwise the scale's."""
    return numpy_dtype(code) if code and at_least_single(scale) == np.float32 else scale.dtype


def dynamic_quantize_linear(attrs: Attributes, x: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """To uint8 with the scale and zero point that the data's own range, zero included, asks for."""
    single = np.float32
    low = min(single(x.min(initial=0)), single(0))
    high = max(single(x.max(initial=0)), single(0))
    scale = single(1) if high == low else (high - low) / single(255)
    zero = np.uint8(np.clip(np.rint(-low / scale), 0, 255))
    y = saturate(x / scale, single(zero), np.dtype(np.uint8))
    return y, np.array(scale, single), np.array(zero, np.uint8)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("QuantizeLinear", numpy=quantize_linear, traits=BENDS | CONVERTS, checks=(layers.quantize,),
    normal_form=(normal.quantization_axis,), sampling=sample.quantize, undefined=undefined.quantization,
    together=equal_axes.parameters)
declare("DequantizeLinear", numpy=dequantize_linear, traits=CONVERTS, checks=(layers.quantize,),
    normal_form=(normal.quantization_axis,), sampling=sample.dequantize, bounds=bounds.dequantized,
    together=equal_axes.parameters)
declare("DynamicQuantizeLinear", numpy=dynamic_quantize_linear, traits=CONVERTS, macs=count.input_elements)
