"""Elementwise operators of several operands with numpy's broadcasting: arithmetic, comparison, logic, selection."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce

import numpy as np

from eqsat.ops.kernels.registry import Attributes, Fallback, in_single, kernel
from eqsat.schema.integers import divided

_Ufunc = Callable[[np.ndarray, np.ndarray], np.ndarray]


def _broadcasting(name: str, function: _Ufunc, since: int = 7) -> None:
    """Register an operator of two operands.

    Until version 6 the second operand is stretched only where ``broadcast`` says so, from ``axis`` on.
    """

    def run(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        return function(a, b)

    def run_old(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
        axis = attrs.get("axis")
        if attrs.get("broadcast") and axis is not None:
            axis += a.ndim if axis < 0 else 0
            b = b.reshape(*b.shape, *(1,) * (a.ndim - axis - b.ndim))
        return function(a, b)

    run.__doc__ = f"``{name}`` with broadcasting."
    kernel(name, since=since)(run)
    if since == 7:
        kernel(name, since=1)(run_old)


def divide(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Quotient; of integers rounded towards zero, as in C."""
    return divided(a, b) if a.dtype.kind in "iu" else np.divide(a, b)


def power(a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """``a ** b`` in the type of ``a``; an integer base with another exponent goes through float64."""
    if a.dtype == b.dtype and a.dtype.kind == "f":
        if b.size == 1 and a.ndim >= b.ndim and b.item() in _SMALL_POWERS:
            return _SMALL_POWERS[b.item()](a)
        return np.power(a, b)
    if a.dtype.kind in "iu" and (b.dtype.kind not in "iu" or (b < 0).any()):
        return np.power(a.astype(np.float64), b.astype(np.float64)).astype(a.dtype)
    return np.power(a, b).astype(a.dtype)


_SMALL_POWERS: dict[float, Callable[[np.ndarray], np.ndarray]] = {
    0.5: np.sqrt,
    1.0: np.copy,
    2.0: np.square,
    3.0: lambda a: a * a * a,
}

for _name, _function in {
    "Add": np.add,
    "Sub": np.subtract,
    "Mul": np.multiply,
    "Div": divide,
    "Pow": power,
    "And": np.logical_and,
    "Or": np.logical_or,
    "Xor": np.logical_xor,
    "Equal": np.equal,
    "Greater": np.greater,
    "Less": np.less,
}.items():
    _broadcasting(_name, _function)
for _name, _function in {
    "GreaterOrEqual": np.greater_equal,
    "LessOrEqual": np.less_equal,
    "BitwiseAnd": np.bitwise_and,
    "BitwiseOr": np.bitwise_or,
    "BitwiseXor": np.bitwise_xor,
}.items():
    _broadcasting(_name, _function, since=1)


@kernel("Mod")
@in_single
def mod(attrs: Attributes, a: np.ndarray, b: np.ndarray) -> np.ndarray:
    """Remainder with the divisor's sign, or with ``fmod`` the dividend's."""
    return np.fmod(a, b) if attrs["fmod"] else np.mod(a, b)


@kernel("BitShift")
def bit_shift(attrs: Attributes, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """Logical shift of unsigned integers."""
    return np.left_shift(x, y) if attrs["direction"] == "LEFT" else np.right_shift(x, y)


@kernel("Max")
def maximum(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Largest of the operands; NaN where any is NaN."""
    return reduce(np.maximum, xs)


@kernel("Min")
def minimum(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Smallest of the operands; NaN where any is NaN."""
    return reduce(np.minimum, xs)


@kernel("Sum")
@in_single
def add_all(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Sum of the operands, from left to right."""
    return reduce(np.add, xs)


@kernel("Mean")
@in_single
def mean(attrs: Attributes, *xs: np.ndarray) -> np.ndarray:
    """Mean of the operands."""
    return reduce(np.add, xs) / xs[0].dtype.type(len(xs))


@kernel("Where")
def where(attrs: Attributes, condition: np.ndarray, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    """``x`` where the condition holds, else ``y``."""
    return np.where(condition, x, y)


@kernel("Clip", since=11)
def clip(attrs: Attributes, x: np.ndarray, low: np.ndarray | None = None, high: np.ndarray | None = None) -> np.ndarray:
    """``min(max(x, low), high)``; with ``low > high`` everything is ``high``."""
    if x.dtype.kind == "O":
        raise Fallback
    if low is not None:
        x = np.maximum(x, low)
    if high is not None:
        x = np.minimum(x, high)
    return x


@kernel("Clip", since=1)
def clip_by_attributes(attrs: Attributes, x: np.ndarray) -> np.ndarray:
    """Before version 11 the limits are attributes."""
    low, high = (None if (v := attrs.get(n)) is None else np.asarray(v, x.dtype) for n in ("min", "max"))
    return clip(attrs, x, low, high)
