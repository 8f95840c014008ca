"""What a report says of a quantization: errors of outputs, tensors with integers, kernels that stay in floats."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far an output is from the original's, as the ratio of signal to quantization noise in dB.

    Attributes:
        required: At least; None without a limit.
        predicted: By the sum of the noise of rounded tensors; infinite without any.
        actual: Measured on calibration samples.
    """

    name: str
    required: float | None
    predicted: float
    actual: float


@dataclass(frozen=True, slots=True)
class QuantizedRow:
    """A tensor that has integers.

    Attributes:
        kind: ``"activation"``, ``"weight"``, ``"bias"`` or ``"constant"``.
        dtype: Of the integers.
        rounded: Whether the program uses them.
        noise: SQNR in dB of the worst output if only this tensor is rounded; that of a bias counts with its weight.
    """

    name: str
    kind: str
    dtype: str
    rounded: bool
    noise: float


@dataclass(frozen=True, slots=True)
class FloatRow:
    """A kernel that computes with floats, by its first output tensor, and why."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quantization:
    """What quantization did.

    Attributes:
        simulate: Whether the integers are only simulated.
        conversions: ``"disabled"``, ``"enabled"`` or ``"fully_integral"``.
        samples: Calibration samples.
        extractions: How many it took until the measured error kept the budget.
        integer: Kernels that read only integers; conversions between floats and integers count nowhere.
        floating: Kernels that read floats.
        integer_macs: MACs of the former.
        macs: MACs of both.
        tensors: In execution order.
        floats: In execution order.
    """

    simulate: bool
    conversions: str
    samples: int
    extractions: int
    integer: int
    floating: int
    integer_macs: int
    macs: int
    outputs: tuple[OutputError, ...]
    tensors: tuple[QuantizedRow, ...]
    floats: tuple[FloatRow, ...]
