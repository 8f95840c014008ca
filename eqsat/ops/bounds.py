"""What is known of the numbers in a constant that is too large to be computed during saturation: interval arithmetic.

Weights are folded after extraction, and only those that are chosen. Whether a folded one would leave the range of its
type must be known before, when the rule is applied that makes it. So each large constant has bounds of the magnitudes
of its elements and of their scales (:mod:`eqsat.ops.wide`), and each operator that rules fold into weights says what
the bounds of its result are. Where none is known, the rule does not apply.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import onnx_ir as ir

from eqsat.ops.wide import FLOATS, Wide, largest, peak_of, smallest_normal
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.types import Attrs, OpKey, TensorType

_CHUNK = 1 << 16


@dataclass(frozen=True, slots=True)
class Bounds:
    """Bounds of a constant's numbers.

    Attributes:
        most: No element is larger in magnitude; ``inf`` where one may be infinite or no number.
        least: No element but zeros is smaller in magnitude; 0 where that is not known.
        zero: Whether an element may be zero.
        negative: Whether an element may be negative.
        floor: The scale of no element but zeros is smaller.
        peak: Each slice along each axis that is not all zero has an element whose scale is at least that.
    """

    most: float
    least: float
    zero: bool
    negative: bool
    floor: float
    peak: float


UNKNOWN = Bounds(math.inf, 0.0, True, True, 0.0, 0.0)


def bounds_of_array(array: np.ndarray, dtype: ir.DataType) -> Bounds:
    """The bounds of a stored constant.

    Magnitudes are compared as bit patterns, which order as they do: one pass through the cache, without a copy.
    """
    if not array.size:
        return Bounds(0.0, math.inf, False, False, math.inf, math.inf)
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
    found = math.inf if least > mask else float(magnitude(np.array([least + 1], unsigned))[0])
    inside = magnitude(inner).reshape(array.shape[1:])
    peak = min(peak_of(magnitude(slices)), peak_of(inside) if inside.ndim else math.inf)
    tiny = smallest_normal(dtype)
    most = most if most == most else math.inf
    return Bounds(most, found, zero, negative, max(found, tiny), max(peak, tiny))


def _bounds_of_integers(array: np.ndarray) -> Bounds:
    if array.dtype.kind not in "iu":
        return UNKNOWN
    most = max(abs(int(array.max())), abs(int(array.min())))
    return Bounds(float(most), 1.0, not array.all(), bool(array.min() < 0), 1.0, 1.0)


def bounds_of_wide(constant: Wide) -> Bounds:
    """The bounds of a constant that was computed."""
    if constant.scale is None:
        return bounds_of_array(constant.values, constant.dtype)
    if not constant.values.size:
        return bounds_of_array(constant.values, constant.dtype)
    found = bounds_of_array(constant.values.astype(np.float64), ir.DataType.DOUBLE)
    scale = constant.scale[constant.scale > 0]
    return replace(found, floor=float(scale.min()) if scale.size else math.inf, peak=peak_of(constant.scale))


def misfit_of_bounds(bounds: Bounds, dtype: ir.DataType, *, contracted: bool = False) -> str:
    """As :func:`eqsat.ops.wide.misfit` for a constant of which only bounds are known."""
    if dtype not in FLOATS:
        return ""
    name = dtype_name(dtype)
    if bounds == UNKNOWN:
        return f"the range of a folded {name} constant is not known"
    if not bounds.most <= largest(dtype):
        return f"up to {bounds.most:.5g} is beyond the largest {name}, {largest(dtype):.5g}"
    tiny = smallest_normal(dtype)
    if bounds.floor >= tiny or (contracted and bounds.peak >= tiny):
        return ""
    lowest = bounds.peak if contracted else bounds.floor
    return f"down to {lowest:.3g} is below the smallest normal {name}, {tiny:.3g}"


# ---- operators ----------------------------------------------------------------------------------------


def operator_bounds(
    op: OpKey, attrs: Attrs, operands: Sequence[Bounds | None], types: Sequence[TensorType | None]
) -> Bounds:
    """The bounds of all results of an operator on constants.

    Args:
        operands: Bounds of its operands, None for an absent one.
        types: Their types.
    """
    found = _OPERATORS.get(op.name) if not op.domain else None
    if found is None or operands[0] is None or UNKNOWN in operands[: _ARITY.get(op.name, 1)]:
        return UNKNOWN
    return found([b if b is not None else UNKNOWN for b in operands], types)


_Operator = Callable[[Sequence[Bounds], Sequence[TensorType | None]], Bounds]
_ARITY = {"Add": 2, "Sub": 2, "Mul": 2, "Div": 2, "MatMul": 2, "DequantizeLinear": 2, "Concat": 1 << 30}


def _same(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    return operands[0]


def _part(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    """Some of the elements, in other slices."""
    return replace(operands[0], peak=operands[0].floor)


def _concatenated(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    return Bounds(
        max(b.most for b in operands),
        min(b.least for b in operands),
        any(b.zero for b in operands),
        any(b.negative for b in operands),
        min(b.floor for b in operands),
        min(b.peak for b in operands),
    )


def _added(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    a, b = operands[:2]
    return Bounds(a.most + b.most, 0.0, True, True, min(a.floor, b.floor), max(a.peak, b.peak))


def _times(a: float, b: float) -> float:
    """A product of bounds, in which zero is stronger than infinity."""
    return 0.0 if 0.0 in (a, b) else a * b


def _multiplied(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    a, b = operands[:2]
    floor = _times(a.floor, b.floor)
    # Where a factor is zero, the largest element of a slice may vanish with it.
    peak = max(floor, 0.0 if b.zero else _times(a.peak, b.floor), 0.0 if a.zero else _times(b.peak, a.floor))
    return Bounds(
        _times(a.most, b.most), _times(a.least, b.least), a.zero or b.zero, a.negative or b.negative, floor, peak
    )


def _divided(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    a, b = operands[:2]
    if b.zero or not b.least > 0 or not b.most < math.inf:
        return UNKNOWN
    return Bounds(
        a.most / b.least,
        a.least / b.most,
        a.zero,
        a.negative or b.negative,
        a.floor / b.most,
        a.peak / b.most,
    )


def _root(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    a = operands[0]
    if a.negative:
        return UNKNOWN
    least = math.sqrt(a.least)
    return Bounds(math.sqrt(a.most), least, a.zero, False, least, least)


def _product(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    a, b = operands[:2]
    kind = types[0]
    terms = kind.shape[-1] if kind is not None and kind.shape else None
    if not isinstance(terms, int):
        return UNKNOWN
    floor = _times(a.floor, b.floor)
    return Bounds(_times(a.most, b.most) * terms, 0.0, True, True, floor, floor)


def _dequantized(operands: Sequence[Bounds], types: Sequence[TensorType | None]) -> Bounds:
    scale, kind = operands[1], types[0]
    if kind is None or kind.dtype.numpy().kind not in "iu" or kind.dtype.bitwidth > 16:
        return UNKNOWN
    levels = float(2**kind.dtype.bitwidth)
    return Bounds(_times(scale.most, levels), scale.least, True, True, scale.floor, scale.floor)


_OPERATORS: Mapping[str, _Operator] = {
    **dict.fromkeys(("Identity", "Transpose", "Expand", "Squeeze", "Unsqueeze", "Neg", "Abs"), _same),
    **dict.fromkeys(("Reshape", "Flatten", "Slice", "Split", "Gather", "Tile", "DepthToSpace", "SpaceToDepth"), _part),
    "Concat": _concatenated,
    "Add": _added,
    "Sub": _added,
    "Mul": _multiplied,
    "Div": _divided,
    "Reciprocal": lambda operands, types: _divided([Bounds(1, 1, False, False, 1, 1), operands[0]], types),
    "Sqrt": _root,
    "MatMul": _product,
    "DequantizeLinear": _dequantized,
}
