"""How operators take part in quantization: which inputs are data, and how outputs relate to them.

An operator that declares a role has an exact integer form: products, sums, pools, unary functions (a table of 256
entries) and data movement. Others can be asked for; then all of their float inputs and outputs are quantized.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Role:
    """How an operator takes part.

    Attributes:
        data: Indices of the inputs that carry data; None for all.
        weight: Index of the input that is a weight where it is constant.
        bias: Index of the bias.
        moves: Whether every output element is an element of the first input, so that outputs have its integers.
        limits: Whether it only limits its input (Relu), so that it is one step with what computes that.
        keeps: Whether it leaves most values as they are.
        selects: Whether every result is an element of one of its operands.
        by_number: Whether it has an integer form only where the second operand is one number.
        result: The range of its results if integer operators have a fixed one, independent of calibration.
    """

    data: tuple[int, ...] | None = None
    weight: int | None = None
    bias: int | None = None
    moves: bool = False
    limits: bool = False
    keeps: bool = False
    selects: bool = False
    by_number: bool = False
    result: tuple[float, float] | None = None


COMPUTES = Role()
"""All inputs are data."""
DATA = Role(data=(0,))
"""The first input is data."""
MOVES_DATA = Role(data=(0,), moves=True)
"""Results are elements of the first input."""
