"""The options of a quantization."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass, field
from typing import Literal

from eqsat.errors import QuantizationError
from eqsat.quantization.methods import ANY_METHOD, METHODS, Method
from eqsat.quantization.noise_limits import NoiseBudget
from eqsat.schema.opset import did_you_mean

ActivationType = Literal["uint8", "int8"]
ACTIVATIONS: tuple[ActivationType, ...] = ("uint8", "int8")
Conversions = Literal["disabled", "enabled", "fully_integral"]
CONVERSIONS: tuple[Conversions, ...] = ("disabled", "enabled", "fully_integral")


@dataclass(frozen=True, slots=True)
class Options:
    """How to quantize.

    Attributes:
        method: How a tensor's range follows from its statistics: a name of :data:`eqsat.quantization.methods.METHODS`.
        percentile: For that method, the percentage of the values inside; half of the rest is cut on either side.
        activation: Element type of activations. Weights are symmetric int8, biases int32.
        symmetric: Whether the range of an activation is symmetric around zero, with a fixed zero point.
        per_channel: Whether each output channel of a weight has a scale of its own.
        skip: Nodes that stay floats, by their name or by the name of one of their outputs.
        operators: Operators to quantize, such as ``("Conv", "Gemm")``; None for all that have an integer form.
        balance: Whether weights are rounded so that the errors of an output channel cancel in the mean, which needs
            statistics; else each is rounded to nearest.

    Raises:
        QuantizationError: An option has an invalid value.
    """

    method: Method = "minmax"
    percentile: float = 99.99
    activation: ActivationType = "uint8"
    symmetric: bool = False
    per_channel: bool = True
    skip: Sequence[str] = ()
    operators: Sequence[str] | None = None
    balance: bool = True

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS, ANY_METHOD)
        _one_of("activation", self.activation, ACTIVATIONS)
        if not 50 < self.percentile <= 100:
            raise QuantizationError(
                "a percentile above 50, at most 100, is required",
                place="option percentile",
                actual=str(self.percentile),
            )
        for name in ("skip", "operators"):
            value = getattr(self, name)
            if value is not None:
                object.__setattr__(self, name, tuple(value))


@dataclass(frozen=True, slots=True, kw_only=True)
class QuantizationOptions:
    """The arguments of :func:`eqsat.quantize` except those of the search.

    Attributes:
        budget: The least ratio of signal to quantization noise, for all float outputs or by output name.
        integers: How ranges are found, and the types of integers; its method is ignored with ``auto``.
        auto: Whether to use the method that is the most accurate on the samples.
        simulate: Whether floats compute what integers would give.
        conversions: Whether the result is cut into ``prefix``, ``core`` and ``suffix``.
        samples: Calibration samples to use at most.
        noise_samples: Samples on which the noise of each tensor is measured; None for a number that fits the model.
        check_samples: Samples on which the result is measured.
        sweep: Number of programs from the cheapest to the most accurate that are compared with the result; 0 for none.

    Raises:
        QuantizationError: An option has an invalid value.
    """

    budget: NoiseBudget = None
    integers: Options = field(default_factory=Options)
    auto: bool = False
    simulate: bool = False
    conversions: Conversions = "disabled"
    samples: int | None = None
    noise_samples: int | None = None
    check_samples: int = 16
    sweep: int = 0

    def __post_init__(self) -> None:
        for name in ("samples", "noise_samples", "check_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise QuantizationError("at least one sample is required", place=f"option {name}", actual=str(value))
        if self.sweep != 0 and self.sweep < 2:
            raise QuantizationError(
                "at least two programs, the cheapest and the most accurate, or 0 for none, are required",
                place="option sweep",
                actual=str(self.sweep),
            )
        _one_of("conversions", self.conversions, CONVERSIONS)
        if self.simulate and self.conversions != "disabled":
            raise QuantizationError(
                "conversions='disabled' is required if integers are only simulated",
                place="option conversions",
                actual=repr(self.conversions),
            )


def _one_of(name: str, value: str, known: Collection[str], allowed: Sequence[str] = ()) -> None:
    """Requires one of the known values; the message lists those that a caller may give, if there are more."""
    if value not in known:
        known = allowed or tuple(known)
        raise QuantizationError(
            f"one of {', '.join(known)} is required",
            place=f"option {name}",
            actual=repr(value),
            hint=did_you_mean(str(value), known),
        )
