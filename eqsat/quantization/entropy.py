"""The range that loses the least information, by relative entropy.

After S. Migacz, "8-bit Inference with TensorRT", GTC 2017. For each candidate threshold, P is the distribution of the
values with everything beyond the threshold counted into the outermost bin, and Q is what the integers preserve of it:
the mass inside, pooled by level and spread evenly over the level's bins that are in use. The threshold with the least
Kullback-Leibler divergence of Q from P wins. Clipping makes the outermost bin of P larger than that of Q; a wide range
makes the levels coarse; the optimum is between.

Unlike in the slides, values below zero are counted separately from those above and the range need not be symmetric, so
that a
threshold t stands for [max(low, -t), min(high, t)]. Exact zeros are left out, as every range represents them exactly.
Bins with only a few values differ by chance. That would count as information which wide levels lose, and clip most of a
small tensor: bins are merged until they hold enough values, and if too few bins remain nothing is clipped.
"""

from __future__ import annotations

import numpy as np

from eqsat.quantization.histogram import SIDE, Histogram

_CANDIDATES = 128
_LEVELS = 256
_ENOUGH = 32
"""Average number of values of a bin in use: then chance adds about 1 / (2 * 32) to a divergence."""


def least_divergence(histogram: Histogram, *, symmetric: bool) -> tuple[float, float]:
    """The range of least divergence.

    Args:
        histogram: Of a tensor that has values other than zero.
        symmetric: Whether levels are spread symmetrically around zero, even if values are not.
    """
    counts = histogram.counts.copy()
    counts[SIDE] -= histogram.zeros
    width, side = histogram.width, SIDE
    first, last, reach = _ends(counts, side)
    while counts.sum() < _ENOUGH * np.count_nonzero(counts):
        if reach // 2 < 4 * _LEVELS:
            return histogram.low, histogram.high
        counts = counts.reshape(-1, 2).sum(axis=1)
        width, side = 2 * width, side // 2
        first, last, reach = _ends(counts, side)
    # Fewer bins than levels would mean that clipping loses nothing.
    least = min(_LEVELS // 2, reach)
    thresholds = np.unique(np.linspace(least, reach, _CANDIDATES).round().astype(int))
    best, best_divergence = reach, np.inf
    for t in thresholds[::-1].tolist():
        low, high = max(first, side - t), min(last, side + t)
        divergence = _divergence(counts, low, high, side - t if symmetric else low, side + t if symmetric else high)
        # Of equal losses the wider range wins, which clips less.
        if divergence < best_divergence * (1 - 1e-9):
            best, best_divergence = t, divergence
    return -float(min(best, side - first)) * width, float(min(best, last - side)) * width


def _ends(counts: np.ndarray, side: int) -> tuple[int, int, int]:
    """The first bin in use, the one after the last, and the distance of the further one from zero."""
    used = np.flatnonzero(counts)
    first, last = int(min(used[0], side)), int(max(used[-1] + 1, side))
    return first, last, max(side - first, last - side)


def _divergence(counts: np.ndarray, low: int, high: int, start: int, stop: int) -> float:
    """Kullback-Leibler divergence for the bins ``low`` to ``high``, with levels spread from ``start`` to ``stop``."""
    inside = counts[low:high].astype(np.float64)
    clipped = inside.copy()
    clipped[0] += counts[:low].sum()
    clipped[-1] += counts[high:].sum()
    level = ((np.arange(low, high) - start) * _LEVELS) // (stop - start)
    mass = np.bincount(level, inside, _LEVELS)
    in_use = np.bincount(level, inside > 0, _LEVELS)
    spread = np.divide(mass, in_use, out=np.zeros(_LEVELS), where=in_use > 0)[level]
    present = clipped > 0
    p = clipped[present] / clipped.sum()
    q = np.where(inside[present] > 0, spread[present], 0.0)
    if not q.any():
        return np.inf
    # An outermost bin that was empty has nothing in Q: it gets half a value.
    q = np.maximum(q, 0.5)
    q /= q.sum()
    return float(np.sum(p * np.log(p / q)))
