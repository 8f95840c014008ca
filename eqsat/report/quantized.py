"""The part of a report about quantization: errors of outputs, tensors with integers, kernels that stay in floats."""

from __future__ import annotations

from dataclasses import dataclass

from eqsat.extract.gap import relative_gap


@dataclass(frozen=True, slots=True)
class OutputError:
    """How far an output is from the original's, as the ratio of signal to quantization noise in dB.

    Attributes:
        required: The least ratio; None without a limit.
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
        dtype: Element type of the integers.
        rounded: Whether the program uses them.
        noise: SQNR in dB of the worst output if only this tensor is rounded; that of a bias counts with its weight.
    """

    name: str
    kind: str
    dtype: str
    rounded: bool
    noise: float


@dataclass(frozen=True, slots=True)
class LayerRow:
    """An operator of the float model with the tensors that belong to it: its result and its constants.

    Attributes:
        name: Its first result.
        tensors: Number of tensors that can have integers.
        rounded: Number of them that the result rounds.
        noise: SQNR in dB of the worst output if only these tensors are rounded.
        before: Seconds of the operator in floats, on the host.
        after: Its share of the kernels that replace it in the result, in proportion to the costs in floats.
    """

    name: str
    op: str
    tensors: int
    rounded: int
    noise: float
    before: float
    after: float


@dataclass(frozen=True, slots=True)
class SweepPoint:
    """The cheapest program at least as accurate as a limit.

    Attributes:
        required: The least SQNR in dB of each output, as predicted; None without a limit.
        cost: Seconds.
        predicted: SQNR in dB of the worst output, by the sum of the noise of rounded tensors.
        rounded: Tensors that it rounds.
        bound: No program that keeps the limit costs less; seconds.
        stop_reason: Of the extraction, as that of a summary.
    """

    required: float | None
    cost: float
    predicted: float
    rounded: int
    bound: float
    stop_reason: str

    @property
    def gap(self) -> float:
        """The greatest possible distance to the optimum, as a share of the cost."""
        return relative_gap(self.cost, self.bound)

    @property
    def proven(self) -> bool:
        """Whether no program that keeps the limit is cheaper by more than the gap of a search that has ended."""
        return self.stop_reason == "optimal"


@dataclass(frozen=True, slots=True)
class FloatRow:
    """A kernel that computes with floats, by its first output tensor, and why."""

    name: str
    op: str
    reason: str


@dataclass(frozen=True, slots=True)
class Quantization:
    """The effect of quantization.

    Attributes:
        simulate: Whether the integers are only simulated.
        conversions: ``"disabled"``, ``"enabled"`` or ``"fully_integral"``.
        samples: Calibration samples.
        extractions: Number of extractions until the measured error was within the budget.
        integer: Kernels that read only integers; conversions between floats and integers count nowhere.
        floating: Kernels that read floats.
        integer_macs: MACs of the former.
        macs: MACs of both.
        tensors: In execution order.
        floats: In execution order.
        layers: Operators of the float model that have such tensors, in execution order.
        sweep: Programs from the cheapest to the most accurate; empty if none was requested.
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
    layers: tuple[LayerRow, ...] = ()
    sweep: tuple[SweepPoint, ...] = ()
