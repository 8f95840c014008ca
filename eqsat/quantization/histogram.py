"""A histogram that grows with its data, so that one pass over the samples is enough.

Bins are ``[k w, (k + 1) w)`` with w a power of two. When a value falls outside, w doubles and neighbours are merged,
which loses nothing that the wider bins could hold. The result is therefore that of two passes (ranges first, bins
then), does not depend on the order of the samples, and an iterator that can be read only once will do.
"""

from __future__ import annotations

import math

import numpy as np

SIDE = 4096
"""Bins on either side of zero; at least half of those on the longer side are in use."""

_CHUNK = 1 << 20
"""Elements processed at once, which bounds the memory for intermediate results."""


class Histogram:
    """Counts, moments and extremes of all values seen.

    Attributes:
        count: Finite values.
        nonfinite: NaN and infinities, which no other number includes.
        zeros: Values equal to zero.
        low, high: Extremes; 0 before the first value.
        total, squares: Sums of the values and of their squares.
        width: Width of a bin; 0 before the first value other than zero.
        counts: Values by bin (int64[2 * SIDE]); the bin at ``SIDE`` starts at zero.
    """

    def __init__(self) -> None:
        self.count = 0
        self.nonfinite = 0
        self.zeros = 0
        self.low = 0.0
        self.high = 0.0
        self.total = 0.0
        self.squares = 0.0
        self.width = 0.0
        self.counts = np.zeros(2 * SIDE, np.int64)

    def add(self, array: np.ndarray) -> None:
        """Count the elements of a floating-point array."""
        flat = array.reshape(-1)
        for start in range(0, flat.size, _CHUNK):
            self._add(flat[start : start + _CHUNK])

    @property
    def edges(self) -> np.ndarray:
        """Lower edges of the bins and the last upper one (float64[2 * SIDE + 1])."""
        return np.arange(-SIDE, SIDE + 1) * self.width

    @property
    def mean(self) -> float:
        """Mean of the values."""
        return self.total / self.count if self.count else 0.0

    @property
    def power(self) -> float:
        """Mean square of the values."""
        return self.squares / self.count if self.count else 0.0

    def _add(self, flat: np.ndarray) -> None:
        x = flat.astype(np.float64)
        finite = np.isfinite(x)
        if not finite.all():
            self.nonfinite += int(x.size - np.count_nonzero(finite))
            x = x[finite]
        if not x.size:
            return
        low, high = float(x.min()), float(x.max())
        self.low = min(low, self.low) if self.count else low
        self.high = max(high, self.high) if self.count else high
        self.count += x.size
        self.zeros += int(x.size - np.count_nonzero(x))
        self.total += float(x.sum())
        self.squares += float(np.dot(x, x))
        self._reach(low, high)
        if not self.width:
            self.counts[SIDE] += x.size
            return
        bins = np.floor(x / self.width).astype(np.int64) + SIDE
        self.counts += np.bincount(bins, minlength=2 * SIDE)

    def _reach(self, low: float, high: float) -> None:
        """Widen the bins until both values have one."""
        largest = max(-low, high)
        if not largest:
            return
        # frexp gives the least power of two above the largest.
        wanted = max(math.ldexp(1.0 / SIDE, math.frexp(largest)[1]), np.finfo(np.float64).tiny)
        if not self.width:
            # Earlier zeros need not be moved: bin SIDE holds them at any width.
            self.width = wanted
            return
        while self.width < wanted:
            self.width *= 2
            merged = np.zeros_like(self.counts)
            # Bin k becomes bin floor(k / 2): pairs stay pairs, as SIDE is even.
            merged[SIDE // 2 : SIDE // 2 + SIDE] = self.counts.reshape(-1, 2).sum(axis=1)
            self.counts = merged
