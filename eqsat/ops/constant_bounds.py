"""Bounds of the numbers in a constant, and of an operator's result; see :mod:`eqsat.ops.interval_arithmetic`."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

from eqsat.schema.types import Attrs, TensorType


@dataclass(frozen=True, slots=True)
class ConstantBounds:
    """Bounds of a constant's numbers.

    Attributes:
        most: No finite element is larger in magnitude; ``inf`` where that is not known.
        least: No element but zeros is smaller in magnitude; 0 where that is not known.
        zero: Whether an element may be zero.
        negative: Whether an element may be negative.
        floor: The scale of no element but zeros is smaller.
        peak: Each slice along each axis that is not all zero has an element whose scale is at least that.
        endless: Whether an element may be infinite or no number because one of a stored constant is, as in masks.
    """

    most: float
    least: float
    zero: bool
    negative: bool
    floor: float
    peak: float
    endless: bool = False


UNKNOWN = ConstantBounds(math.inf, 0.0, True, True, 0.0, 0.0, True)

_Types = Sequence[TensorType | None]


@dataclass(frozen=True, slots=True)
class BoundsRule:
    """The bounds of all results of an operator on constants.

    Attributes:
        result: Gives them from the bounds and types of its operands, and its attributes.
        operands: How many operands must have known bounds, at least.
        finite: Whether their elements must be finite; if not, the result is endless where they are.
    """

    result: Callable[[Sequence[ConstantBounds], _Types, Attrs], ConstantBounds]
    operands: int = 1
    finite: bool = True


def _same(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    return operands[0]


def _part(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    """Some of the elements, in other slices."""
    return replace(operands[0], peak=operands[0].floor)


def _concatenated(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    return ConstantBounds(
        max(b.most for b in operands),
        min(b.least for b in operands),
        any(b.zero for b in operands),
        any(b.negative for b in operands),
        min(b.floor for b in operands),
        min(b.peak for b in operands),
        any(b.endless for b in operands),
    )


def _padded(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    widths = operands[1]
    inside = _part(operands, types, attrs) if widths.negative else operands[0]
    if len(types) < 3 or types[2] is None:
        return replace(inside, zero=True)
    return UNKNOWN if operands[2] == UNKNOWN else _concatenated((inside, operands[2]), types, attrs)


def _selected(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    """Each element is one of the second or third operand."""
    found = _concatenated(operands[1:3], types, attrs)
    return replace(found, peak=found.floor)


def _truths(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    return ConstantBounds(1.0, 1.0, True, False, 1.0, 1.0)


def _identity(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    return ConstantBounds(1.0, 1.0, True, False, 1.0, 1.0)


def _added(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    a, b = operands[:2]
    endless = a.endless or b.endless
    return ConstantBounds(a.most + b.most, 0.0, True, True, min(a.floor, b.floor), max(a.peak, b.peak), endless)


def _times(a: float, b: float) -> float:
    """A product of bounds, in which zero is stronger than infinity."""
    return 0.0 if 0.0 in (a, b) else a * b


def _multiplied(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    a, b = operands[:2]
    floor = _times(a.floor, b.floor)
    # If a factor is zero, the largest element of a slice may become zero.
    peak = max(floor, 0.0 if b.zero else _times(a.peak, b.floor), 0.0 if a.zero else _times(b.peak, a.floor))
    return ConstantBounds(
        _times(a.most, b.most), _times(a.least, b.least), a.zero or b.zero, a.negative or b.negative, floor, peak
    )


def _divided(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    a, b = operands[:2]
    if b.zero or not b.least > 0 or not b.most < math.inf:
        return UNKNOWN
    return ConstantBounds(
        a.most / b.least,
        a.least / b.most,
        a.zero,
        a.negative or b.negative,
        a.floor / b.most,
        a.peak / b.most,
    )


def _root(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    a = operands[0]
    if a.negative:
        return UNKNOWN
    least = math.sqrt(a.least)
    return ConstantBounds(math.sqrt(a.most), least, a.zero, False, least, least)


def _product(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    a, b = operands[:2]
    kind = types[0]
    terms = kind.shape[-1] if kind is not None and kind.shape else None
    if not isinstance(terms, int):
        return UNKNOWN
    floor = _times(a.floor, b.floor)
    return ConstantBounds(_times(a.most, b.most) * terms, 0.0, True, True, floor, floor)


def _dequantized(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    scale, kind = operands[1], types[0]
    if kind is None or kind.dtype.numpy().kind not in "iu" or kind.dtype.bitwidth > 16:
        return UNKNOWN
    levels = float(2**kind.dtype.bitwidth)
    return ConstantBounds(_times(scale.most, levels), scale.least, True, True, scale.floor, scale.floor)


def _inverted(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    return _divided([ConstantBounds(1, 1, False, False, 1, 1), operands[0]], types, attrs)


def _single_share(operands: Sequence[ConstantBounds], types: _Types, attrs: Attrs) -> ConstantBounds:
    """The logarithm of a softmax of single elements: zero, or no number if the element is not finite."""
    kind, axis = types[0], dict(attrs).get("axis")
    if kind is None or kind.shape is None or not isinstance(axis, int) or kind.shape[axis] != 1:
        return UNKNOWN
    return ConstantBounds(0.0, math.inf, True, False, math.inf, 0.0, operands[0].endless)


same = BoundsRule(_same, finite=False)
part = BoundsRule(_part, finite=False)
most_of = BoundsRule(_part, finite=False)
concatenated = BoundsRule(_concatenated, 1 << 30, finite=False)
padded = BoundsRule(_padded, 2, finite=False)
selected = BoundsRule(_selected, 3, finite=False)
truths = BoundsRule(_truths, finite=False)
identity = BoundsRule(_identity)
added = BoundsRule(_added, 2, finite=False)
multiplied = BoundsRule(_multiplied, 2)
divided = BoundsRule(_divided, 2)
inverted = BoundsRule(_inverted)
root = BoundsRule(_root)
product = BoundsRule(_product, 2)
single_share = BoundsRule(_single_share, finite=False)
dequantized = BoundsRule(_dequantized, 2)
