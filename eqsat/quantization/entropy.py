"""The range that loses the least information, by relative entropy.

After S. Migacz, "8-bit Inference with TensorRT", GTC 2017. For each candidate threshold, P is the distribution of the
values with everything beyond the threshold counted into the outermost bin, and Q what the integers can tell of it:
the mass inside, pooled by level and spread evenly over the level's bins that are in use. The threshold with the least
Kullback-Leibler divergence of Q from P wins. Clipping makes the outermost bin of P larger than that of Q; a wide range
makes the levels coarse; the optimum is between.

Beyond the slides: values below zero are kept apart from those above and the range need not be symmetric, so that a
threshold t stands for [max(low, -t), min(high, t)]. Exact zeros are left out, as every range represents them exactly.
"""

from __future__ import annotations

import numpy as np

from eqsat.quantization.histogram import SIDE, Histogram

_CANDIDATES = 128
_LEVELS = 256


def least_divergence(histogram: Histogram, *, symmetric: bool) -> tuple[float, float]:
    """The range of least divergence.

    Args:
        histogram: Of a tensor that has values other than zero.
        symmetric: Whether levels are spread over as much below zero as above, whatever is there.
    """
    counts = histogram.counts.copy()
    counts[SIDE] -= histogram.zeros
    used = np.flatnonzero(counts)
    first, last = int(min(used[0], SIDE)), int(max(used[-1] + 1, SIDE))
    reach = max(SIDE - first, last - SIDE)
    # Fewer bins than levels would say that nothing is lost however much is clipped.
    least = min(_LEVELS // 2, reach)
    thresholds = np.unique(np.linspace(least, reach, _CANDIDATES).round().astype(int))
    best, best_divergence = reach, np.inf
    for t in thresholds[::-1].tolist():
        low, high = max(first, SIDE - t), min(last, SIDE + t)
        divergence = _divergence(counts, low, high, SIDE - t if symmetric else low, SIDE + t if symmetric else high)
        # A draw goes to the wider range, which clips less.
        if divergence < best_divergence * (1 - 1e-9):
            best, best_divergence = t, divergence
    width = histogram.width
    return -float(min(best, SIDE - first)) * width, float(min(best, last - SIDE)) * width


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
    # An outermost bin that was empty itself has nothing in Q: half a value stands for it.
    q = np.maximum(q, 0.5)
    q /= q.sum()
    return float(np.sum(p * np.log(p / q)))
