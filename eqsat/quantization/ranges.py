"""Ranges of tensors from their statistics. Each contains zero, so that zero has an integer of its own.

Zero must be exact: padding inserts it, Relu produces it, and its error would be the same everywhere instead of
averaging out (Krishnamoorthi, "Quantizing deep convolutional networks for efficient inference", 2018, section 2.1).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from eqsat.quantization.calibrate import Calibration
from eqsat.quantization.histogram import Histogram
from eqsat.quantization.methods import METHODS
from eqsat.quantization.options import Options

_INFINITE = float(np.finfo(np.float32).max) / 2


@dataclass(frozen=True, slots=True)
class Range:
    """The real numbers that the integers represent: ``low <= 0 <= high``. Both are 0 for a tensor of zeros."""

    low: float
    high: float

    def __post_init__(self) -> None:
        if not (self.low <= 0 <= self.high and np.isfinite(self.low) and np.isfinite(self.high)):
            raise ValueError(f"a finite range that contains zero is required; got [{self.low}, {self.high}]")


def ranges(calibration: Calibration, options: Options | None = None) -> dict[str, Range]:
    """The range of every tensor that can have one.

    Args:
        calibration: Statistics, and the constants, whose range is always that of their values.
        options: Method and element type; other options are ignored.

    Returns:
        Range by tensor name. Tensors without elements have no range, nor do those with NaN, infinities, or substitutes
        for infinity: next to the lowest number of float32 in a mask, all others would be rounded to zero.
    """
    options = options or Options()
    found = {
        name: tensor_range(histogram, options)
        for name, histogram in calibration.tensors.items()
        if histogram.count and not histogram.nonfinite and max(-histogram.low, histogram.high) < _INFINITE
    }
    for name, array in calibration.constants.items():
        known = constant_range(array)
        if known is not None:
            found[name] = known
    return found


def constant_range(array: np.ndarray) -> Range | None:
    """The range of known values and zero, None if there is no range."""
    wide = array.astype(np.float64)
    if not array.size or not (np.abs(wide) < _INFINITE).all():
        return None
    return Range(min(0.0, float(wide.min())), max(0.0, float(wide.max())))


def tensor_range(histogram: Histogram, options: Options) -> Range:
    """The range of one tensor by the chosen method, never wider than the values seen and zero."""
    low, high = min(0.0, histogram.low), max(0.0, histogram.high)
    if not histogram.width:
        return Range(low, high)
    inner_low, inner_high = METHODS[options.method].limits(histogram, options)
    return Range(min(0.0, max(low, inner_low)), max(0.0, min(high, inner_high)))
