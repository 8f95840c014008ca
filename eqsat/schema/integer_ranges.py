"""Interval arithmetic of integers: between which numbers a result lies if its operands lie between others.

Sizes and the integers that programs compute are bounded by the same rules.
"""

from __future__ import annotations

from collections.abc import Sequence

IntegerRange = tuple[int, int]
"""The least and the greatest number."""


def products(a: IntegerRange, b: IntegerRange) -> IntegerRange:
    """The range of ``x * y``."""
    ends = [x * y for x in a for y in b]
    return min(ends), max(ends)


def quotients(a: IntegerRange, b: IntegerRange) -> IntegerRange | None:
    """The range of ``x // y``; None unless x is not negative and y is positive."""
    return (a[0] // b[1], a[1] // b[0]) if a[0] >= 0 and b[0] > 0 else None


def remainders(a: IntegerRange, b: IntegerRange) -> IntegerRange | None:
    """The range of ``x % y``; None unless y is positive."""
    if b[0] <= 0:
        return None
    return 0, min(a[1], b[1] - 1) if a[0] >= 0 else b[1] - 1


def greater(ranges: Sequence[IntegerRange]) -> IntegerRange:
    """The range of the greatest of several numbers."""
    return max(low for low, _ in ranges), max(high for _, high in ranges)


def smaller(ranges: Sequence[IntegerRange]) -> IntegerRange:
    """The range of the smallest of several numbers."""
    return min(low for low, _ in ranges), min(high for _, high in ranges)


def hull(ranges: Sequence[IntegerRange]) -> IntegerRange:
    """The range of any of several numbers."""
    return min(low for low, _ in ranges), max(high for _, high in ranges)
