"""Constant expressions in a wider type than their own, with the scale that rounding errors are measured by.

Each rule can be right over the reals and the constants that it computes be wrong: ``300 * 300`` is infinite in float16,
``1e-4 * 1e-4`` is zero. Constants of a rule are therefore computed here in float64 (float64 itself in the
widest type of the machine) and rounded once. :func:`misfit` tells whether the element type can hold the result.

The *scale* of an element is the magnitude of the terms that it was computed from: ``|a| + |b|`` for ``a + b``, the
product of both scales for ``a * b``. An error of half a unit in the last place of the scale is one that the operands
already have. So a sum that cancels to something tiny may be rounded away, and a tiny product may not (running error
analysis: Higham, Accuracy and Stability of Numerical Algorithms, chapter 3).

What rounding takes away is not forgotten. If ``1000 + 1e-5`` were 1000, ``(x + 1e-5) + 1000`` would be ``x + 1000``;
subtract 1000 again, and ``x + 1e-5`` is x. So a constant that was rounded is another one than the number that it was
rounded to: its *residue* tells them apart, and further constants are computed with it.
"""

from __future__ import annotations

from collections.abc import Sequence

import ml_dtypes
import numpy as np
import onnx_ir as ir

from eqsat.errors import EqsatError
from eqsat.ops.evaluate import evaluate
from eqsat.ops.operators import operator
from eqsat.ops.scales import Wide
from eqsat.ops.traits import Trait
from eqsat.schema.dtypes import FLOATS, dtype_name
from eqsat.schema.types import CAST, CAST_LIKE, Attrs, OpKey, TensorType


def largest_finite(dtype: ir.DataType) -> float:
    """The largest finite number of a floating-point type."""
    return float(ml_dtypes.finfo(dtype.numpy()).max)


def smallest_normal(dtype: ir.DataType) -> float:
    """The smallest positive number of a floating-point type that has its full precision."""
    return float(ml_dtypes.finfo(dtype.numpy()).smallest_normal)


def wide_type(dtype: ir.DataType) -> np.dtype:
    """The type in which constants of a floating-point type are computed."""
    return np.dtype(np.longdouble if dtype == ir.DataType.DOUBLE else np.float64)


def widen(array: np.ndarray, dtype: ir.DataType, residue: np.ndarray | None = None) -> Wide:
    """A constant as it is stored; below the normal numbers it is as uncertain as the smallest of them.

    Args:
        residue: The part that rounding took away, see :func:`residue_of`.
    """
    if dtype not in FLOATS:
        return Wide(dtype, array)
    values = np.asarray(array).astype(wide_type(dtype))
    values = values if residue is None else values + residue
    size = np.abs(values)
    return Wide(dtype, values, np.where(size > 0, np.maximum(size, smallest_normal(dtype)), 0))


def exactly(value: object, dtype: ir.DataType) -> Wide:
    """A number in a rule, which is exact even if it is tiny."""
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
    for kind, value, scale in zip(results, values, scales, strict=True):
        if kind is None or value is None:
            found.append(None)
        elif kind.dtype in FLOATS:
            wide = np.asarray(value).astype(wide_type(kind.dtype))
            size = np.abs(wide)
            least = size if scale is None else np.maximum(size, np.broadcast_to(scale, size.shape))
            found.append(Wide(kind.dtype, wide, least, _lost(op, operands, kind.dtype)))
        else:
            found.append(Wide(kind.dtype, np.asarray(value)))
    return tuple(found)


SUMS = (OpKey("", "Add"), OpKey("", "Sub"))
"""Operators in which a small constant may be lost next to a large one."""


def _lost(op: OpKey, operands: Sequence[Wide | None], dtype: ir.DataType) -> str:
    """Why two constants must not be added: the sum would lose most digits of one of them, in all elements.

    The sum alone is accurate. But in an e-graph the larger one can be subtracted again: if ``1 + 1e-30`` is 1, then ``x
    + 1e-30`` is ``(x + 1) - 1``, and that is x. In tensors, this may affect some of the elements: a mask hides the
    biases of some scores.
    """
    if op not in SUMS or any(o is None or o.scale is None for o in operands):
        return ""
    first, second = np.broadcast_arrays(*(np.abs(o.values) for o in operands if o is not None))
    for small, large in ((first, second), (second, first)):
        counts = (small > 0) & np.isfinite(large)
        if counts.any() and (small < large * 2.0 ** (_KEPT - _digits(dtype)))[counts].all():
            at = np.unravel_index(int(np.argmax(counts)), counts.shape)
            return f"{_show(small[at])} is lost beside {_show(large[at])}"
    return ""


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
        # Some implementations lack longdouble; their results in float64 are exact enough for float64 itself.
        narrow = [a.astype(np.float64) if a is not None and a.dtype == np.longdouble else a for a in arrays]
        return evaluate(op, attrs, narrow, len(results))


_CASTS = (CAST, CAST_LIKE)


# ---- scales -------------------------------------------------------------------------------------------


def _scales(
    op: OpKey,
    attrs: Attrs,
    operands: Sequence[Wide | None],
    values: Sequence[np.ndarray | None],
    results: Sequence[TensorType | None],
) -> Sequence[np.ndarray | None]:
    """The scales of the results; None where the scale is the magnitude."""
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


# ---- what rounding takes away -------------------------------------------------------------------------

_KEPT = 16
"""Binary digits that are to be known of the smaller one of two constants from their sum."""


def _digits(dtype: ir.DataType) -> int:
    """Binary digits that are kept of constants of an element type, the last few of the wide type not among them."""
    return 60 if dtype == ir.DataType.DOUBLE else 46


def residue_of(constant: Wide) -> np.ndarray | None:
    """What rounding a constant to its element type takes away from each element; None if nothing.

    It is rounded to :func:`_digits` of the element, so that a computation in another order gives the same constant.
    """
    if constant.scale is None:
        return None
    with np.errstate(all="ignore"):
        residue = constant.values - constant.rounded().astype(constant.values.dtype)
        step = np.exp2(np.frexp(constant.values)[1].astype(constant.values.dtype) - _digits(constant.dtype))
        residue = np.where(np.isfinite(residue), np.rint(residue / step) * step, 0)
    return residue if residue.any() else None


# ---- whether a type can hold a constant ---------------------------------------------------------------


def misfit(constant: Wide, *, contracted: bool = False) -> str:
    """Why an element type cannot hold a constant; empty if it can.

    It can if all elements are finite, and no element other than zero becomes zero or subnormal, unless by no more than
    the error that it already has. As weights (``contracted``), small elements count beside the largest one of their
    slice, since they are only ever added to it. Also, neither of two constants may be lost in their sum.
    """
    dtype, scale = constant.dtype, constant.scale
    if scale is None or not constant.values.size:
        return ""
    rounded = constant.rounded()
    finite = np.isfinite(rounded)
    name = dtype_name(dtype)
    if not finite.all():
        value = constant.values[~finite].flat[0]
        if np.isnan(value):
            return "not a number"
        return f"{_show(value)} is beyond the largest {name}, {largest_finite(dtype):.5g}"
    if constant.lost:
        return constant.lost
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
