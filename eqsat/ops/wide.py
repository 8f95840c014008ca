"""Constant expressions in a wider type than their own, with the scale that rounding errors are measured by.

Each rule can be right over the reals and the constants that it computes be wrong: ``300 * 300`` is infinite in float16,
``1e-4 * 1e-4`` is zero. So what a rule computes from constants is computed here in float64 (float64 itself in the
widest type of the machine) and rounded once. :func:`misfit` says whether the element type can hold the result.

The *scale* of an element is the magnitude of the terms that it was computed from: ``|a| + |b|`` for ``a + b``, the
product of both scales for ``a * b``. An error of half a unit in the last place of the scale is one that the operands
already have. So a sum that cancels to something tiny may be rounded away, and a tiny product may not (running error
analysis: Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import operator
from eqsat.ops.scales import FLOATS, Wide
from eqsat.ops.traits import Trait
from eqsat.schema.dtypes import dtype_name
from eqsat.schema.types import Attrs, OpKey, TensorType


def largest(dtype: ir.DataType) -> float:
    """The largest finite number of a floating-point type."""
    return float(ml_dtypes.finfo(dtype.numpy()).max)


def smallest_normal(dtype: ir.DataType) -> float:
    """The smallest positive number of a floating-point type that has its full precision."""
    return float(ml_dtypes.finfo(dtype.numpy()).smallest_normal)


def wide_type(dtype: ir.DataType) -> np.dtype:
    """What constants of a floating-point type are computed in."""
    return np.dtype(np.longdouble if dtype == ir.DataType.DOUBLE else np.float64)


def widen(array: np.ndarray, dtype: ir.DataType, units: np.ndarray | None = None) -> Wide:
    """A constant as it is stored; below the normal numbers it is as uncertain as the smallest of them.

    Args:
        units: By how many units each element was rounded, see :func:`rounded_by`.
    """
    if dtype not in FLOATS:
        return Wide(dtype, array)
    values = np.asarray(array).astype(wide_type(dtype))
    size = np.abs(values)
    scale = np.where(size > 0, np.maximum(size, smallest_normal(dtype)), 0)
    return Wide(dtype, values, scale, None if units is None else units * _unit(values, dtype))


def exactly(value: object, dtype: ir.DataType) -> Wide:
    """A number of a rule, which is exact however small."""
    values = np.asarray(value)
    if dtype not in FLOATS:
        return Wide(dtype, values.astype(dtype.numpy()))
    values = values.astype(wide_type(dtype))
    return Wide(dtype, values, np.abs(values))


def evaluate_wide(
    op: OpKey, attrs: Attrs, operands: Sequence[Wide | None], results: Sequence[TensorType | None]
) -> tuple[Wide | None, ...]:
    """An operator on constants.

    Args:
        results: Types of its outputs.

    Raises:
        EqsatError: It cannot be evaluated on these operands.
    """
    values = wide_values(op, attrs, [None if o is None else o.values for o in operands], results)
    found: list[Wide | None] = []
    scales = _scales(op, attrs, operands, values, results)
    errors = _errors(op, attrs, operands, values, results)
    for kind, value, scale in zip(results, values, scales, strict=True):
        if kind is None or value is None:
            found.append(None)
        elif kind.dtype in FLOATS:
            wide = np.asarray(value).astype(wide_type(kind.dtype))
            size = np.abs(wide)
            least = size if scale is None else np.maximum(size, np.broadcast_to(scale, size.shape))
            found.append(Wide(kind.dtype, wide, least, errors[len(found)]))
        else:
            found.append(Wide(kind.dtype, np.asarray(value)))
    return tuple(found)


def _errors(
    op: OpKey,
    attrs: Attrs,
    operands: Sequence[Wide | None],
    values: Sequence[np.ndarray | None],
    results: Sequence[TensorType | None],
) -> list[np.ndarray | None]:
    """The errors of the results: how far they move where one operand moves by its error, added up over the operands.

    A sum may lose its smaller operand even in the wider type.
    """
    arrays = [None if o is None else o.values for o in operands]
    errors: list[np.ndarray | None] = [None] * len(values)
    if op in SUMS and results[0] is not None and results[0].dtype in FLOATS:
        first, second = (a for a in arrays if a is not None)
        lost = _lost(first, second if op.name == "Add" else -second)
        errors[0] = lost if lost.any() else None
    for k, operand in enumerate(operands):
        if operand is None or operand.error is None:
            continue
        moved = wide_values(op, attrs, [*arrays[:k], operand.values + operand.error, *arrays[k + 1 :]], results)
        for i, (value, other) in enumerate(zip(values, moved, strict=True)):
            kind, before = results[i], errors[i]
            if value is not None and other is not None and kind is not None and kind.dtype in FLOATS:
                with np.errstate(all="ignore"):
                    same = np.shape(other) == np.shape(value)
                    error = np.abs(np.asarray(other) - np.asarray(value)) if same else np.full(np.shape(value), np.inf)
                errors[i] = error if before is None else before + error
    return errors


SUMS = (OpKey("", "Add"), OpKey("", "Sub"))


def _lost(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """What the rounded sum of two arrays lacks (Knuth, The Art of Computer Programming 2, section 4.2.2, theorem B)."""
    with np.errstate(all="ignore"):
        total = first + second
        back = total - first
        lost = (first - (total - back)) + (second - back)
    return np.where(np.isfinite(lost), np.abs(lost), 0)


def wide_values(
    op: OpKey, attrs: Attrs, arrays: Sequence[np.ndarray | None], results: Sequence[TensorType | None]
) -> Sequence[np.ndarray | None]:
    """An operator on arrays of wide types; a cast between floating-point types changes nothing there.

    Raises:
        EqsatError: It cannot be evaluated on these operands.
    """
    if op in _CASTS and results[0] is not None and results[0].dtype in FLOATS:
        assert arrays[0] is not None
        return (arrays[0].astype(wide_type(results[0].dtype)),)
    try:
        return evaluate(op, attrs, arrays, len(results))
    except EqsatError:
        # Some implementations know no longdouble; what they compute in float64 is exact enough for float64 itself.
        narrow = [a.astype(np.float64) if a is not None and a.dtype == np.longdouble else a for a in arrays]
        return evaluate(op, attrs, narrow, len(results))


_CASTS = (OpKey("", "Cast"), OpKey("", "CastLike"))


# ---- scales -------------------------------------------------------------------------------------------


def _scales(
    op: OpKey,
    attrs: Attrs,
    operands: Sequence[Wide | None],
    values: Sequence[np.ndarray | None],
    results: Sequence[TensorType | None],
) -> Sequence[np.ndarray | None]:
    """The scales of the results, None where it is the magnitude."""
    given = [o for o in operands if o is not None]
    if results[0] is None or results[0].dtype not in FLOATS or op.domain:
        return [None] * len(values)
    scale = operator(op).scale
    if scale is not None:
        with np.errstate(all="ignore"):
            return [scale(given)]
    if operator(op).traits & (Trait.MOVES | Trait.LINEAR):
        scales = [None if o is None else o.values if o.scale is None else o.scale for o in operands]
        return wide_values(op, attrs, scales, results)
    return [None] * len(values)


# ---- what roundings have done -------------------------------------------------------------------------

MOST_UNITS = 128
"""Units in the last place by which an element of a constant may be wrong through roundings before."""
_SMALL = 1 / 8
"""Elements smaller than this part of a tensor's largest one may be as wrong as one of that size."""
_MOST_WRONG = 0.25
"""Part of an element beyond which it counts as lost."""
_MOST_LOST = 1 / 16
"""Part of the elements that may be lost: of many channels, some come near zero by chance."""


def rounded_by(constant: Wide, *, anew: bool) -> np.ndarray | None:
    """By how many units in its last place each element may be wrong once it is rounded; None if none is.

    The units are powers of four, so that a constant that is made in several ways is one constant most of the time.

    Args:
        anew: Whether rounding it to its element type adds to that.
    """
    if constant.scale is None:
        return None
    error = np.zeros(constant.values.shape) if constant.error is None else constant.error
    if anew:
        with np.errstate(all="ignore"):
            error = error + np.abs(constant.rounded().astype(constant.values.dtype) - constant.values)
    wrong = error > 0
    if not wrong.any():
        return None
    with np.errstate(all="ignore"):
        units = np.where(wrong, error / _unit(constant.values, constant.dtype), 1)
    return np.where(wrong, np.exp2(2 * np.ceil(np.log2(np.maximum(units, 1)) / 2)), 0)


def _unit(values: np.ndarray, dtype: ir.DataType) -> np.ndarray:
    return float(ml_dtypes.finfo(dtype.numpy()).eps) * np.maximum(np.abs(values), smallest_normal(dtype))


def _is_known(constant: Wide) -> bool:
    """Whether more is left of each element than roundings before may have changed."""
    if constant.error is None:
        return True
    size = np.abs(constant.values)
    unit = float(ml_dtypes.finfo(constant.dtype.numpy()).eps)
    most = np.minimum(MOST_UNITS * unit, _MOST_WRONG) * np.maximum(size, _SMALL * float(size.max(initial=0)))
    lost = np.count_nonzero(constant.error > _MOST_WRONG * size)
    return bool((constant.error <= most).all() and lost <= _MOST_LOST * size.size)


# ---- whether a type can hold a constant ---------------------------------------------------------------


def misfit(constant: Wide, *, contracted: bool = False) -> str:
    """Why an element type cannot hold a constant; empty if it can.

    It can if all elements are finite, and none that is not zero becomes zero or subnormal, unless by no more than
    the error that it already has. As weights (``contracted``), small elements count beside the largest one of
    their slice, since they are only ever added to it. Nor must little more be left of it than earlier roundings.
    """
    dtype, scale = constant.dtype, constant.scale
    if scale is None or not constant.values.size:
        return ""
    rounded = constant.rounded()
    finite = np.isfinite(rounded)
    name = dtype_name(dtype)
    if not finite.all():
        value = constant.values[~finite].flat[0]
        return (
            f"{_show(value)} is beyond the largest {name}, {largest(dtype):.5g}" if value == value else "not a number"
        )
    if not _is_known(constant):
        return f"too little is left of it beside what {name} has rounded before"
    tiny = smallest_normal(dtype)
    if not ((scale > 0) & (scale < tiny)).any():
        return ""
    if contracted and peak_of(scale) >= tiny:
        return ""
    value = constant.values[(scale > 0) & (scale < tiny)].flat[0]
    return f"{_show(value)} is below the smallest normal {name}, {tiny:.3g}"


def _show(value: np.floating | float) -> str:
    return f"{float(value):.5g}" if np.isfinite(float(value)) else f"{value}"


def peak_of(scale: np.ndarray) -> float:
    """The smallest, over all slices along all axes that are not zero, of the largest element; ``inf`` if all are."""
    least = np.inf
    for axis in range(max(scale.ndim, 1)):
        slices = scale.max(axis=tuple(a for a in range(scale.ndim) if a != axis)) if scale.ndim else scale.reshape(1)
        positive = slices[slices > 0]
        if positive.size:
            least = min(least, float(positive.min()))
    return least
