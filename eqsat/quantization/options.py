"""What a user can say about a quantization."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Literal

from eqsat.errors import QuantizationError
from eqsat.schema.opset import did_you_mean

Method = Literal["minmax", "percentile", "entropy", "mse"]
METHODS: tuple[Method, ...] = ("minmax", "percentile", "entropy", "mse")
Activation = Literal["uint8", "int8"]
ACTIVATIONS: tuple[Activation, ...] = ("uint8", "int8")


@dataclass(frozen=True, slots=True)
class Options:
    """How to quantize.

    Attributes:
        method: How a tensor's range follows from its statistics: ``"minmax"`` all that was seen, ``"percentile"``
            without the outermost values, ``"entropy"`` least loss of information, ``"mse"`` least squared error.
        percentile: For that method, how many percent of the values are inside; half of the rest is cut on either side.
        activation: Element type of activations. Weights are symmetric int8, biases int32.
        symmetric: Whether the range of an activation is as wide below zero as above, with a fixed zero point.
        per_channel: Whether each output channel of a weight has a scale of its own.
        skip: Nodes that stay as they are, by their name or by that of one of their outputs.
        operators: Operators to quantize, such as ``("Conv", "Gemm")``; None for all that have an integer form.
        balance: Whether weights are rounded so that the errors of an output channel cancel in the mean, which needs
            statistics; else each is rounded to nearest.

    Raises:
        QuantizationError: A value that does not exist.
    """

    method: Method = "minmax"
    percentile: float = 99.99
    activation: Activation = "uint8"
    symmetric: bool = False
    per_channel: bool = True
    skip: Sequence[str] = ()
    operators: Sequence[str] | None = None
    balance: bool = True

    def __post_init__(self) -> None:
        _one_of("method", self.method, METHODS)
        _one_of("activation", self.activation, ACTIVATIONS)
        if not 50 < self.percentile <= 100:
            raise QuantizationError(
                "a percentile above 50, at most 100, is required",
                place="option percentile",
                actual=str(self.percentile),
            )
        for name in ("skip", "operators"):
            value = getattr(self, name)
            if isinstance(value, str):
                raise QuantizationError(
                    "a list of names is required", place=f"option {name}", actual=repr(value), hint=f"[{value!r}]"
                )
            if value is not None:
                object.__setattr__(self, name, tuple(value))


def _one_of(name: str, value: str, known: tuple[str, ...]) -> None:
    if value not in known:
        raise QuantizationError(
            f"one of {', '.join(known)} is required",
            place=f"option {name}",
            actual=repr(value),
            hint=did_you_mean(str(value), known),
        )
