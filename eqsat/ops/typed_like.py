"""Operators whose types follow from a standard operator's; :mod:`eqsat.model.inference.contrib` applies that."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.schema.types import AttrValue, TensorType

TypeRule = Callable[[Mapping[str, AttrValue], Sequence[TensorType | None]], Sequence[TensorType | None]]
"""Types of all results for attributes (defaults filled in) and types of the inputs; sizes may be symbols."""


@dataclass(frozen=True, slots=True)
class Like:
    """Types as the standard operator's.

    Attributes:
        standard: Its name.
        operands: Positions of the operands it would have; a last ``-3`` means every third input from there on.
        result: Position of the input whose element type the result has, or an element type.
        absent: The result's element type where that input is absent.
        integers: Positions of operands that are parameters and no data.
        channels_last: Whether the data has its channels last, independent of an attribute of that name.
    """

    standard: str
    operands: tuple[int, ...] = (0,)
    result: int | ir.DataType = 0
    absent: ir.DataType = ir.DataType.UINT8
    integers: tuple[int, ...] = ()
    channels_last: bool = False

    @property
    def group(self) -> int:
        """How many variadic operands belong together."""
        return max(-self.operands[-1], 1) if self.operands else 1
