"""Scales of results that operators compute from constants: the magnitude of the terms, see :mod:`eqsat.ops.wide`."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir

from eqsat.schema.dtypes import FLOATS


@dataclass(frozen=True)
class Wide:
    """A constant before it is rounded to its element type.

    Attributes:
        dtype: Its element type.
        values: In the wider type; as they are where ``dtype`` is not one of :data:`FLOATS`.
        scale: Of each element, at least its magnitude; None where ``dtype`` is not one of :data:`FLOATS`.
        lost: Why the sum lost a term; empty if it did not.
    """

    dtype: ir.DataType
    values: np.ndarray
    scale: np.ndarray | None = None
    lost: str = ""

    def rounded(self) -> np.ndarray:
        """The constant in its element type."""
        with np.errstate(all="ignore"):
            return self.values.astype(self.dtype.numpy()) if self.dtype in FLOATS else self.values


Scale = Callable[[Sequence[Wide]], np.ndarray]


def _scale_of(operand: Wide) -> np.ndarray:
    return np.abs(operand.values.astype(np.float64)) if operand.scale is None else operand.scale


def _amplification(operand: Wide) -> np.ndarray:
    """By how much the scale exceeds the magnitude."""
    size = np.abs(operand.values)
    return np.where(size > 0, _scale_of(operand) / np.where(size > 0, size, 1), 1)


def of_sum(operands: Sequence[Wide]) -> np.ndarray:
    total = _scale_of(operands[0])
    for operand in operands[1:]:
        total = total + _scale_of(operand)
    return total


def of_mean(operands: Sequence[Wide]) -> np.ndarray:
    return of_sum(operands) / len(operands)


def of_operand(operands: Sequence[Wide]) -> np.ndarray:
    """Neg, Abs."""
    return _scale_of(operands[0])


def of_product(operands: Sequence[Wide]) -> np.ndarray:
    return _scale_of(operands[0]) * _scale_of(operands[1])


def of_quotient(operands: Sequence[Wide]) -> np.ndarray:
    return _scale_of(operands[0]) * _amplification(operands[1]) / np.abs(operands[1].values)


def of_reciprocal(operands: Sequence[Wide]) -> np.ndarray:
    return _amplification(operands[0]) / np.abs(operands[0].values)


def of_root(operands: Sequence[Wide]) -> np.ndarray:
    return np.sqrt(np.abs(operands[0].values)) * _amplification(operands[0])
