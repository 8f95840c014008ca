"""How far two lists agree in their order."""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike


def ranks(values: ArrayLike) -> np.ndarray:
    """Positions in ascending order from 1; equal values share the mean of theirs."""
    _, where, counts = np.unique(np.asarray(values, float), return_inverse=True, return_counts=True)
    last = np.cumsum(counts)
    return (last - (counts - 1) / 2)[where]


def spearman(a: ArrayLike, b: ArrayLike) -> float:
    """Spearman's rank correlation: Pearson's, of ranks. NaN where one list has no order.

    Spearman, "The proof and measurement of association between two things", Am. J. Psychology 15(1), 1904.
    """
    return _pearson(ranks(a), ranks(b))


def kendall(a: ArrayLike, b: ArrayLike) -> float:
    """Kendall's tau-b: how many pairs are in the same order, less how many are not. NaN where one list has no order.

    Kendall, "The treatment of ties in ranking problems", Biometrika 33(3), 1945.
    """
    x, y = (np.sign(np.subtract.outer(v, v)) for v in (np.asarray(a, float), np.asarray(b, float)))
    scale = math.sqrt(float((x * x).sum()) * float((y * y).sum()))
    return float((x * y).sum()) / scale if scale else math.nan


def _pearson(a: np.ndarray, b: np.ndarray) -> float:
    a, b = a - a.mean(), b - b.mean()
    scale = math.sqrt(float((a * a).sum()) * float((b * b).sum()))
    return float((a * b).sum()) / scale if scale else math.nan
