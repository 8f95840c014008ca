"""How operators take part in quantization: which inputs are data, and how outputs relate to them.

An operator that declares a role has an exact integer form: products, sums, pools, unary functions (a table of 256
entries) and data movement. Others can be asked for; then all of their float inputs and outputs are quantized.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Protocol

import numpy as np

from eqsat.schema.types import Attributes


class Operands(Protocol):
    """The operands of a node."""

    def has(self, index: int, /) -> bool:
        """Whether an operand is there."""
        ...

    def constant(self, index: int, /) -> np.ndarray | None:
        """The elements of a constant operand; None if it is absent or computed."""
        ...


@dataclass(frozen=True, slots=True)
class Weight:
    """The weight of products.

    Attributes:
        index: Index of the input that is the weight if it is constant.
        axis: Computes the axis of its output channels from attributes and rank; None if there are no scales by channel.
        bias: Index of the bias.
        scales_bias: Whether attributes scale the products or the bias.
    """

    index: int
    axis: Callable[[Attributes, int], int | None]
    bias: int | None = None
    scales_bias: Callable[[Attributes], bool] = lambda attributes: False


@dataclass(frozen=True, slots=True)
class Role:
    """How an operator takes part in quantization.

    Attributes:
        data: Indices of the inputs that carry data; None for all.
        weight: The input that is a weight.
        moves: Whether every output element is an element of the first input, so that outputs have its integers.
        limits: Whether it only limits its input (Relu), so that it is one step with the operator before it.
        keeps: Whether it leaves most values unchanged.
        selects: Whether every result is an element of one of its operands.
        by_number: The second operands, numbers, for which it has an integer form; None if any tensor will do.
        result: The range of its results if integer operators have a fixed one, independent of calibration.
        of_node: Computes the role of a node if attributes and constants decide it; None if it takes no part.
    """

    data: tuple[int, ...] | None = None
    weight: Weight | None = None
    moves: bool = False
    limits: bool = False
    keeps: bool = False
    selects: bool = False
    by_number: Callable[[float], bool] | None = None
    result: tuple[float, float] | None = None
    of_node: Callable[[Attributes, Operands], Role | None] | None = None


COMPUTES = Role()
"""All inputs are data."""
DATA = Role(data=(0,))
"""The first input is data."""
MOVES_DATA = Role(data=(0,), moves=True)
"""Results are elements of the first input."""
