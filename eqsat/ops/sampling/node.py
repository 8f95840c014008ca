"""One operator while its operands are drawn: the values that a sampler reads and decides."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Literal, Protocol

import numpy as np
import onnx_ir as ir

from eqsat.ops.sampling.chance import Chance
from eqsat.schema.types import OpKey, Shape

Fill = Literal["any", "positive", "nonzero", "unit", "scale"]
"""The values for which the operator is defined over the reals: anything, more than 0, other than 0, between 0 and 1.

Its result for other floats is that of IEEE 754, and rules of class ``exact`` are tried on them as well. A ``scale`` is
more than 0; ONNX leaves open what the result is for other numbers.
"""

OperandKind = Literal["known", "node", "input", "constant", "number"]


class SampledNode(Protocol):
    """An operator of a pattern; :class:`eqsat.check.pattern_node.PatternNode` is the implementation.

    Attributes:
        op: The operator.
        chance: Where randomness comes from.
        shape: The shape that is wished for the result; None if any will do.
        attrs: The attributes decided so far; those that the pattern prescribes are present from the start.
        required: Names of the attributes that the pattern prescribes.
        asked: Names of the attributes that the rule mentions.
        named: Unusual element types that the rule mentions.
        outputs: Number of outputs.
        count: Number of operands, absent ones included.
    """

    op: OpKey
    chance: Chance
    shape: Shape | None
    attrs: dict[str, Any]
    required: frozenset[str]
    asked: frozenset[str]
    named: tuple[ir.DataType, ...]
    outputs: int
    count: int

    def has(self, i: int) -> bool:
        """Whether the operand is there."""
        ...

    def kind(self, i: int) -> OperandKind:
        """An operand of a pattern: something drawn before, an operator, a leaf, a number."""
        ...

    def known(self, i: int) -> Shape | None:
        """The shape of an operand that has been drawn."""
        ...

    def value(self, i: int) -> np.ndarray | None:
        """The contents of a constant operand that has been drawn."""
        ...

    def draw(
        self,
        i: int,
        shape: Shape | None = None,
        *,
        fill: Fill = "any",
        values: np.ndarray | list[int] | None = None,
        dtype: ir.DataType | None = None,
        of_size: bool = False,
    ) -> Shape:
        """Draws an operand and returns its shape. All arguments are wishes.

        Args:
            i: Its position.
            shape: Its shape.
            of_size: Only the number of elements matters: the shape may be another one with the same number.
            fill: The values that it must hold.
            values: Makes a leaf a constant of these contents.
            dtype: Its element type.
        """
        ...

    def wished(self, shape: Shape) -> Shape:
        """The shape of the result that conditions ask for, judging by the operands known so far."""
        ...

    def dtype(self, i: int) -> ir.DataType:
        """The element type of an operand: that of its neighbours, otherwise any that the operator takes."""
        ...

    def result(self) -> ir.DataType | None:
        """The element type that is wished for the result."""
        ...

    def usual(self, kinds: Sequence[ir.DataType]) -> ir.DataType:
        """One of some element types: mostly the one that a leaf drawn before has."""
        ...

    def attr(self, name: str, value: Any) -> Any:
        """Decides an attribute unless the pattern prescribes it; returns its value."""
        ...

    def near(self, name: str, *usual: float) -> float:
        """Draws a small positive float: one of the usual values, or one close to a number of the rule."""
        ...

    def real(self, name: str, *usual: float) -> float:
        """Decides a float: one of the usual values, a number of the rule, or any."""
        ...


Sampler = Callable[[SampledNode], None]
"""Draws all operands of an operator and decides its attributes, so that it is defined for them."""
