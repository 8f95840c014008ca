"""The result of a quantization: a program like any other, with its errors and its share of integers."""

from __future__ import annotations

from dataclasses import dataclass, field

from eqsat.quantization.noise import Noise
from eqsat.quantization.scheme import Scheme
from eqsat.quantization.share import IntegerShare
from eqsat.report.quantized import FloatRow
from eqsat.result import Result


@dataclass(frozen=True, repr=False)
class QuantizationResult(Result):
    """The result of :func:`eqsat.quantize`.

    Attributes:
        required: The lowest acceptable signal-to-quantization-noise ratio (SQNR) in dB, by output name, for the outputs
            that have a limit.
        predicted: SQNR in dB, by output, predicted from the noise of the rounded tensors.
        actual: SQNR in dB, by output, measured on calibration samples against the original.
        tensors: Names of the tensors that are rounded.
        floats: Kernels that compute with floats, and the reasons.
        share: How much of the program computes with integers.
        extractions: Number of extractions until the measured error was within the budget.
        scheme: All tensors that could be rounded.
        noise: The effect of each of its tensors on the outputs.
    """

    required: dict[str, float] = field(default_factory=dict)
    predicted: dict[str, float] = field(default_factory=dict)
    actual: dict[str, float] = field(default_factory=dict)
    tensors: tuple[str, ...] = ()
    floats: tuple[FloatRow, ...] = ()
    share: IntegerShare = field(default=IntegerShare(0, 0, 0, 0, 0))
    extractions: int = 1
    scheme: Scheme = field(default=Scheme((), ()))
    noise: Noise | None = field(default=None)

    def __repr__(self) -> str:
        errors = ", ".join(f"{name} {value:.1f} dB" for name, value in self.actual.items())
        return (
            f"<eqsat.QuantizationResult {self.summary.model}: cost {self.cost:.3g} s (was {self.baseline_cost:.3g} s), "
            f"{errors}, {self.share.integer} integer and {self.share.floating} float kernels>"
        )
