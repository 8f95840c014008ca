"""Bounds on the numbers in a constant that is too large to be computed during saturation: interval arithmetic.

Weights are folded after extraction, and only chosen ones. But whether a folded weight stays within the range of its
type must be known when the rule that makes it is applied. So each large constant has bounds of the magnitudes of its
elements and of their scales (:mod:`eqsat.ops.wide`), and each operator that rules fold into weights gives the bounds of
its result. If no bounds are known, the rule does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from eqsat.ops import constant_bounds
from eqsat.ops.constant_bounds import UNKNOWN, ConstantBounds
from eqsat.ops.operators import has, operator
from eqsat.ops.scales import Wide
from eqsat.ops.traits import Trait
from eqsat.ops.wide import largest_finite, peak_of, smallest_normal
from eqsat.schema.dtypes import FLOATS, dtype_name
from eqsat.schema.types import Attrs, OpKey, TensorType

_CHUNK = 1 << 16


def bounds_of_array(array: np.ndarray, dtype: ir.DataType) -> ConstantBounds:
    """The bounds of a stored constant.

    Magnitudes are compared as bit patterns, which order as they do: one pass through the cache, without a copy.
    """
    if not array.size:
        return ConstantBounds(0.0, math.inf, False, False, math.inf, math.inf)
    if dtype not in FLOATS:
        return _bounds_of_integers(array)
    kind = array.dtype
    signed, unsigned = np.dtype(f"i{kind.itemsize}"), np.dtype(f"u{kind.itemsize}")
    rows = np.ascontiguousarray(array).reshape(array.shape[0] if array.ndim else 1, -1)
    mask = unsigned.type(np.iinfo(signed).max)
    step = max(1, _CHUNK // rows.shape[1])
    slices = np.zeros(rows.shape[0], unsigned)
    inner = np.zeros(rows.shape[1], unsigned)
    negative, zero, least = False, False, np.iinfo(unsigned).max
    for start in range(0, rows.shape[0], step):
        bits = rows[start : start + step].view(unsigned)
        negative |= bool((bits > mask).any())
        bits = bits & mask
        slices[start : start + step] = bits.max(axis=1)
        np.maximum(inner, bits.max(axis=0), out=inner)
        zero |= not bits.all()
        # Zeros wrap around to the largest pattern.
        least = min(least, int((bits - unsigned.type(1)).min()))

    def magnitude(pattern: np.ndarray) -> np.ndarray:
        return pattern.view(kind).astype(np.float64)

    most = float(magnitude(slices).max())
    if not math.isfinite(most):
        finite = bounds_of_array(np.where(np.isfinite(array), array, kind.type(0)), dtype)
        return replace(finite, zero=zero, negative=negative, endless=True)
    found = math.inf if least > mask else float(magnitude(np.array([least + 1], unsigned))[0])
    inside = magnitude(inner).reshape(array.shape[1:])
    peak = min(peak_of(magnitude(slices)), peak_of(inside) if inside.ndim else math.inf)
    tiny = smallest_normal(dtype)
    return ConstantBounds(most, found, zero, negative, max(found, tiny), max(peak, tiny))


def _bounds_of_integers(array: np.ndarray) -> ConstantBounds:
    if array.dtype.kind == "b":
        return ConstantBounds(1.0, 1.0, True, False, 1.0, 1.0)
    if array.dtype.kind not in "iu":
        return UNKNOWN
    most = max(abs(int(array.max())), abs(int(array.min())))
    return ConstantBounds(float(most), 1.0, not array.all(), bool(array.min() < 0), 1.0, 1.0)


def bounds_of_wide(constant: Wide) -> ConstantBounds:
    """The bounds of a constant that was computed."""
    if constant.scale is None:
        return bounds_of_array(constant.values, constant.dtype)
    if not constant.values.size:
        return bounds_of_array(constant.values, constant.dtype)
    found = bounds_of_array(constant.values.astype(np.float64), ir.DataType.DOUBLE)
    scale = np.where(np.isfinite(constant.scale), constant.scale, 0)
    positive = scale[scale > 0]
    return replace(found, floor=float(positive.min()) if positive.size else math.inf, peak=peak_of(scale))


def misfit_of_bounds(bounds: ConstantBounds, dtype: ir.DataType, *, contracted: bool = False) -> str:
    """:func:`eqsat.ops.wide.misfit` for a constant with known bounds only."""
    if dtype not in FLOATS:
        return ""
    name = dtype_name(dtype)
    if bounds == UNKNOWN:
        return f"the range of a folded {name} constant is not known"
    if not bounds.most <= largest_finite(dtype):
        return f"up to {bounds.most:.5g} is beyond the largest {name}, {largest_finite(dtype):.5g}"
    tiny = smallest_normal(dtype)
    if bounds.floor >= tiny or (contracted and bounds.peak >= tiny):
        return ""
    lowest = bounds.peak if contracted else bounds.floor
    return f"down to {lowest:.3g} is below the smallest normal {name}, {tiny:.3g}"


# ---- operators ----------------------------------------------------------------------------------------


def keeps_numbers(op: OpKey) -> bool:
    """Whether every element of the result is one of the first operand. `Neg` has the bounds of its operand as well,
    because bounds are of magnitudes, but it computes.
    """
    return operator(op).bounds in (constant_bounds.same, constant_bounds.part) and not has(op, Trait.ELEMENTWISE)


def operator_bounds(
    op: OpKey, attrs: Attrs, operands: Sequence[ConstantBounds | None], types: Sequence[TensorType | None]
) -> ConstantBounds:
    """The bounds of all results of an operator on constants.

    Args:
        operands: Bounds of its operands, None for an absent one.
        types: Their types.
    """
    found = operator(op).bounds
    if found is None or operands[0] is None or UNKNOWN in operands[: found.operands]:
        return UNKNOWN
    if found.finite and any(b is not None and b.endless for b in operands[: found.operands]):
        return UNKNOWN
    return found.result([b if b is not None else UNKNOWN for b in operands], types, attrs)
