"""The range of least expected squared error: the error of clipping is weighed against that of coarse levels.

Values inside are off by a rounding error that is uniform over a step, so s²/12 each; values beyond are off by their
distance to the end of the range (the model of Banner, Nahshan, Soudry, "Post training 4-bit quantization of
convolutional networks for rapid-deployment", 2019, applied to the histogram itself instead of a fitted distribution).
Exact zeros cost nothing, as every range represents them. Both ends are searched together, coarsely and then finely.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from eqsat.quantization.histogram import SIDE, Histogram

_LEVELS = 256
_COARSE = 64
_FINE = 16

_Error = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""Error of ranges by the magnitudes of their ends."""


def least_squared_error(histogram: Histogram, *, symmetric: bool) -> tuple[float, float]:
    """The range of least expected squared error.

    Args:
        histogram: Of a tensor that has values other than zero.
        symmetric: Whether levels are spread symmetrically around zero, even if values are not.
    """
    error = _ClippedError(histogram)
    # In units of a bin, because squares of the values themselves might overflow.
    width = histogram.width
    low, high = max(0.0, -histogram.low) / width, max(0.0, histogram.high) / width
    if symmetric:
        u, _ = _search(lambda u, v: error(u, u, 2 * u / (_LEVELS - 2)), max(low, high), 0.0)
        return -u * width, u * width
    u, v = _search(lambda u, v: error(u, v, (u + v) / (_LEVELS - 1)), low, high)
    return -u * width, v * width


def _search(error: _Error, low: float, high: float) -> tuple[float, float]:
    """Magnitudes of both ends, up to the given ones, with the least error: a grid, then a finer one about the best."""
    u, v = _best(error, _grid(low, 0.0, low, _COARSE), _grid(high, 0.0, high, _COARSE))
    a, b = low / _COARSE, high / _COARSE
    return _best(error, _grid(low, u - a, u + a, 2 * _FINE), _grid(high, v - b, v + b, 2 * _FINE))


def _best(error: _Error, lows: np.ndarray, highs: np.ndarray) -> tuple[float, float]:
    a, b = (x.reshape(-1) for x in np.meshgrid(lows, highs, indexing="ij"))
    # Larger ends come first: of equal errors the wider range wins.
    found = int(np.argmin(error(a, b)))
    return float(a[found]), float(b[found])


def _grid(largest: float, start: float, stop: float, steps: int) -> np.ndarray:
    """Positive candidates, falling; only zero if there are no values on this side."""
    if not largest:
        return np.zeros(1)
    points = np.linspace(min(stop, largest), start, steps, endpoint=False)
    return points[points > 0]


class _ClippedError:
    """Sum of squared errors for many ranges at once."""

    def __init__(self, histogram: Histogram) -> None:
        counts = histogram.counts.astype(np.float64)
        counts[SIDE] -= histogram.zeros
        # Magnitudes on either side, from zero outwards, in bins.
        centers = np.arange(SIDE) + 0.5
        self._below = _tails(counts[SIDE - 1 :: -1], centers)
        self._above = _tails(counts[SIDE:], centers)

    def __call__(self, low: np.ndarray, high: np.ndarray, step: np.ndarray) -> np.ndarray:
        beyond_low, clipped_low = self._clipped(self._below, low)
        beyond_high, clipped_high = self._clipped(self._above, high)
        inside = self._below[0][0] + self._above[0][0] - beyond_low - beyond_high
        return inside * step**2 / 12 + clipped_low + clipped_high

    def _clipped(self, tails: tuple[np.ndarray, ...], end: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """How many values are beyond, and their squared error."""
        # Bins whose centre is beyond the end.
        k = np.clip(np.ceil(end - 0.5), 0, SIDE).astype(int)
        n, first, second = (t[k] for t in tails)
        return n, np.maximum(second - 2 * end * first + end**2 * n, 0.0)


def _tails(counts: np.ndarray, centers: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Count, sum and sum of squares of the values in the bins from each on; 0 after the last."""

    def tail(x: np.ndarray) -> np.ndarray:
        return np.append(np.cumsum(x[::-1])[::-1], 0.0)

    return tail(counts), tail(counts * centers), tail(counts * centers**2)
