"""The methods by which a tensor's range follows from its statistics.

A further method is a name in :data:`Method` and an entry of :data:`METHODS`: options, the command line and
``method="auto"`` read them here, and a test compares the reference page with them. What a method computes is imported
when it is used, since the command line imports this file for its help.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol

if TYPE_CHECKING:
    from eqsat.quantization.histogram import Histogram

Method = Literal["minmax", "percentile", "entropy", "mse"]
AnyMethod = Method | Literal["auto"]


class Settings(Protocol):
    """The options that methods read, see :class:`eqsat.quantization.options.Options`."""

    @property
    def percentile(self) -> float: ...

    @property
    def symmetric(self) -> bool: ...


@dataclass(frozen=True, slots=True)
class RangeMethod:
    """One method.

    Attributes:
        summary: The values within the range, as the help of the command line says it.
        limits: The lowest and the greatest number of the range, for a tensor that has values other than zero. Zero and
            the values seen limit them further.
    """

    summary: str
    limits: Callable[[Histogram, Settings], tuple[float, float]]


def _minmax(histogram: Histogram, options: Settings) -> tuple[float, float]:
    return histogram.low, histogram.high


def _percentile(histogram: Histogram, options: Settings) -> tuple[float, float]:
    """The narrowest bin edges with no more values outside than may be cut, half on each side."""
    import numpy as np

    cut = histogram.count * (100.0 - options.percentile) / 200.0
    edges = histogram.edges
    below = np.cumsum(histogram.counts)
    # First bin with which more than the cut would be gone; its lower edge stays.
    low = edges[int(np.searchsorted(below, cut, side="right"))]
    above = np.cumsum(histogram.counts[::-1])
    high = edges[len(edges) - 1 - int(np.searchsorted(above, cut, side="right"))]
    return float(low), float(high)


def _entropy(histogram: Histogram, options: Settings) -> tuple[float, float]:
    from eqsat.quantization.entropy import least_divergence

    return least_divergence(histogram, symmetric=options.symmetric)


def _squared_error(histogram: Histogram, options: Settings) -> tuple[float, float]:
    from eqsat.quantization.squared_error import least_squared_error

    return least_squared_error(histogram, symmetric=options.symmetric)


METHODS: Mapping[Method, RangeMethod] = {
    "minmax": RangeMethod("all values seen", _minmax),
    "percentile": RangeMethod("all values except the outermost ones", _percentile),
    "entropy": RangeMethod("the range whose integers preserve the distribution best", _entropy),
    "mse": RangeMethod("the range with the least squared error", _squared_error),
}
ANY_METHOD: tuple[AnyMethod, ...] = (*METHODS, "auto")
