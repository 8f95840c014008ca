"""Elementwise operators of several operands with numpy's broadcasting: arithmetic, comparison, logic, selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from eqsat.ops import constant_bounds as bounds
from eqsat.ops import counters as count
from eqsat.ops import over_reals as reals
from eqsat.ops import scales, undefined
from eqsat.ops.checks import attributes, movement
from eqsat.ops.magnitude import OF_ALL, Magnitude
from eqsat.ops.numpy_kernel import Fallback, NumpyFunction, in_single
from eqsat.ops.quantization_role import COMPUTES, Role
from eqsat.ops.registry import declare
from eqsat.ops.sampling import elementwise as sample
from eqsat.ops.selection import Selection
from eqsat.ops.traits import (
    BENDS,
    BROADCASTS,
    COMMUTATIVE,
    DIVIDES,
    ELEMENTARY,
    ELEMENTWISE,
    FIXED,
    KEEPS_FROM_ZERO,
    OWN_ATTRIBUTES,
    POLES,
    SELECTS,
    SIZES,
    SUMS,
)
from eqsat.schema.integers import divided
from eqsat.schema.types import Attributes

_Ufunc = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _broadcasting(function: _Ufunc) -> NumpyFunction:
    """A kernel of two operands that broadcast."""

    def run(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return function(a, b)

    return run


def _since_broadcasting(function: _Ufunc) -> dict[int, NumpyFunction]:
    """Kernels of an operator whose second operand was, until version 6, stretched from ``axis`` on if asked for."""

    def run_old(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        axis = attrs.get("axis")
        if attrs.get("broadcast") and axis is not None:
            axis += a.ndim if axis < 0 else 0
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis - b.ndim))
        return function(a, b)

    return {7: _broadcasting(function), 1: run_old}


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient; of integers rounded towards zero, as in C."""
    return divided(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a ** b`` in the type of ``a``; an integer base with another exponent goes through float64."""
    if a.dtype == b.dtype and a.dtype.kind == "f":
        if b.size == 1 and a.ndim >= b.ndim and b.item() in _SMALL_POWERS:
            return _SMALL_POWERS[b.item()](a)
        return _float_power(a, b)
    if a.dtype.kind in "iu" and (b.dtype.kind not in "iu" or (b < 0).any()):
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return _float_power(a, b).astype(a.dtype)


def _float_power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """As in C. numpy takes a square root for some exponents of 0.5, which differs at negative zero and infinity."""
    y, half = np.power(a, b), b == 0.5
    return np.where(half & (np.isneginf(a) | (a == 0)), np.abs(a), y) if half.any() else y


_SMALL_POWERS: dict[float, Callable[[np.ndarray], np.ndarray]] = {
    1.0: np.copy,
    2.0: np.square,
    3.0: lambda a: a * a * a,
}


@in_single
def mod(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the divisor's sign, or with ``fmod`` the dividend's."""
    return np.fmod(a, b) if attrs["fmod"] else np.mod(a, b)


def bit_shift(attrs: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logical shift of unsigned integers."""
    return np.left_shift(x, y) if attrs["direction"] == "LEFT" else np.right_shift(x, y)


def _over_all(function: _Ufunc) -> NumpyFunction:
    """A kernel of any number of operands, from left to right."""

    def run(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
        return reduce(function, xs)

    return run


@in_single
def mean(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Mean of the operands."""
    return reduce(np.add, xs) / xs[0].dtype.type(len(xs))


def where(attrs: Attributes, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x`` where the condition is true, else ``y``."""
    return np.where(condition, x, y)


def clip(attrs: Attributes, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """``min(max(x, low), high)``; with ``low > high`` everything is ``high``."""
    if x.dtype.kind == "O":
        raise Fallback
    if low is not None:
        x = np.maximum(x, low)
    if high is not None:
        x = np.minimum(x, high)
    return x


def clip_by_attributes(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 11 the limits are attributes."""
    low, high = (None if (v := attrs.get(n)) is None else np.asarray(v, x.dtype) for n in ("min", "max"))
    return clip(attrs, x, low, high)


# ---- declarations ----------------------------------------------------------------------------------
# fmt: off
declare("Mod", numpy=mod, traits=BROADCASTS | POLES | SIZES | FIXED | DIVIDES, checks=(attributes.mod, movement.divide),
    sampling=sample.divide, undefined=undefined.division)
declare("BitShift", numpy=bit_shift, traits=BROADCASTS | OWN_ATTRIBUTES | SIZES | FIXED, sampling=sample.shift,
    checks=(attributes.words(direction=("LEFT", "RIGHT")),))
declare("Max", numpy=_over_all(np.maximum), traits=BROADCASTS | COMMUTATIVE | SELECTS | BENDS | SIZES | FIXED,
    macs=count.variadic, quantization=Role(keeps=True, selects=True), magnitude=OF_ALL)
declare("Min", numpy=_over_all(np.minimum), traits=BROADCASTS | COMMUTATIVE | SELECTS | BENDS | SIZES | FIXED,
    macs=count.variadic, quantization=Role(keeps=True, selects=True), magnitude=OF_ALL)
declare("Sum", numpy=in_single(_over_all(np.add)), traits=BROADCASTS | COMMUTATIVE | SUMS | SIZES, macs=count.variadic,
    quantization=COMPUTES, scale=scales.of_sum)
declare("Mean", numpy=mean, traits=BROADCASTS | COMMUTATIVE, macs=count.variadic, scale=scales.of_mean,
    over_reals=reals.mean)
declare("Where", numpy=where, traits=BROADCASTS | SELECTS | BENDS | SIZES | FIXED, sampling=sample.where,
    bounds=bounds.selected, magnitude=Magnitude((1, 2)), selects=Selection((1, 2)))
declare("Clip", numpy={11: clip, 1: clip_by_attributes}, traits=ELEMENTWISE | SELECTS | BENDS | SIZES | FIXED,
    checks=(movement.parameters(numbers=(1, 2)),), sampling=sample.clip,
    quantization=Role(data=(0,), limits=True, keeps=True, selects=True), over_reals=reals.clip)
declare("Add", numpy=_since_broadcasting(np.add), traits=BROADCASTS | COMMUTATIVE | SUMS | SIZES | FIXED,
    quantization=COMPUTES, scale=scales.of_sum, bounds=bounds.added)
declare("And", numpy=_since_broadcasting(np.logical_and), traits=BROADCASTS | COMMUTATIVE | BENDS | SIZES | FIXED,
    bounds=bounds.truths)
declare("BitwiseAnd", numpy=_broadcasting(np.bitwise_and), traits=BROADCASTS | COMMUTATIVE | FIXED)
declare("BitwiseOr", numpy=_broadcasting(np.bitwise_or), traits=BROADCASTS | COMMUTATIVE | FIXED)
declare("BitwiseXor", numpy=_broadcasting(np.bitwise_xor), traits=BROADCASTS | COMMUTATIVE | FIXED)
declare("Div", numpy=_since_broadcasting(divide),
    traits=BROADCASTS | SIZES | POLES | KEEPS_FROM_ZERO | FIXED | DIVIDES, checks=(movement.divide,),
    sampling=sample.divide, quantization=Role(data=(0,), by_number=lambda n: n != 0), scale=scales.of_quotient,
    bounds=bounds.divided, undefined=undefined.division)
declare("Equal", numpy=_since_broadcasting(np.equal), traits=BROADCASTS | COMMUTATIVE | SELECTS | BENDS | SIZES | FIXED,
    bounds=bounds.truths)
declare("Greater", numpy=_since_broadcasting(np.greater), traits=BROADCASTS | SELECTS | BENDS | SIZES | FIXED,
    bounds=bounds.truths, over_reals=reals.greater)
declare("GreaterOrEqual", numpy=_broadcasting(np.greater_equal), traits=BROADCASTS | SELECTS | BENDS | SIZES | FIXED,
    bounds=bounds.truths, over_reals=reals.greater_or_equal)
declare("Less", numpy=_since_broadcasting(np.less), traits=BROADCASTS | SELECTS | BENDS | SIZES | FIXED,
    bounds=bounds.truths)
declare("LessOrEqual", numpy=_broadcasting(np.less_equal), traits=BROADCASTS | SELECTS | BENDS | SIZES | FIXED,
    bounds=bounds.truths)
declare("Mul", numpy=_since_broadcasting(np.multiply),
    traits=BROADCASTS | COMMUTATIVE | SIZES | KEEPS_FROM_ZERO | FIXED,
    quantization=COMPUTES, scale=scales.of_product, bounds=bounds.multiplied)
declare("Or", numpy=_since_broadcasting(np.logical_or), traits=BROADCASTS | COMMUTATIVE | SIZES | FIXED,
    bounds=bounds.truths)
declare("Pow", numpy=_since_broadcasting(power), traits=BROADCASTS | ELEMENTARY | POLES | KEEPS_FROM_ZERO | SIZES,
    sampling=sample.power, quantization=Role(data=(0,), by_number=lambda n: n >= 1 and n.is_integer()))
declare("Sub", numpy=_since_broadcasting(np.subtract), traits=BROADCASTS | SUMS | SIZES | FIXED, quantization=COMPUTES,
    scale=scales.of_sum, bounds=bounds.added)
declare("Xor", numpy=_since_broadcasting(np.logical_xor), traits=BROADCASTS | COMMUTATIVE | SIZES | FIXED)
