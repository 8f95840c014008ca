"""The distance of a program to the optimum, as the bound proves it."""

from __future__ import annotations


def relative_gap(cost: float, bound: float) -> float:
    """``(cost - bound) / cost``; 0 where the cost is 0."""
    return max(0.0, (cost - bound) / cost) if cost > 0 else 0.0
