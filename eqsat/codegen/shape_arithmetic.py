"""Shapes that a model computes from free sizes, known when C is generated.

``Shape`` of a tensor with free sizes is an array of :class:`~eqsat.schema.size.Size`, and what operators make of it is
one again: a model that computes the shape for a ``Reshape`` needs no code for that. Where such an array is data, a
kernel writes its elements (:mod:`eqsat.codegen.kernels.loops.size_tensors`). The arithmetic is that of inference
(:mod:`eqsat.model.inference`), which a program needs in full: it has no use for a result that is known in part.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.errors import EqsatError
from eqsat.model.inference.shape_values import of_sizes, settled, sizes_of_shape
from eqsat.model.inference.sized_shapes import SizedOperand, result_dims
from eqsat.ops.operators import has, operator
from eqsat.ops.traits import Trait
from eqsat.schema.dtypes import to_dtype
from eqsat.schema.size import Size
from eqsat.schema.types import CAST, CAST_LIKE, Attrs, OpKey, TensorType


def is_sizes(operand: object) -> bool:
    """Whether an operand is an array in which some elements are free sizes."""
    return (
        isinstance(operand, np.ndarray)
        and operand.dtype == object
        and any(isinstance(x, Size) for x in operand.reshape(-1))
    )


def depends_on_inputs(operand: ProgramOperand | None) -> bool:
    """Whether an operand is a tensor or has free sizes; others are constants."""
    return isinstance(operand, ProgramTensor) or is_sizes(operand)


def computed(
    op: OpKey, attrs: Attrs, operands: Sequence[ProgramOperand | None], outputs: int = 1
) -> list[np.ndarray] | None:
    """The results of an operator on shapes; None if one of them is no shape, or depends on data.

    Args:
        op: The operator.
        attrs: Its attributes.
        operands: Tensors, constants and arrays of sizes.
        outputs: Number of its results.

    Returns:
        Arrays of objects, or of numbers where no element is a free size.
    """
    first = operands[0] if operands else None
    if op.domain or first is None:
        return None
    if has(op, Trait.BY_TYPE):
        found = [sizes_of_shape(op.name, attrs, first.shape)]
    elif not has(op, Trait.SIZES) or not any(map(is_sizes, operands)):
        return None
    else:
        arrays = [x for x in operands if not isinstance(x, ProgramTensor)]
        dtype = _dtype(op, attrs, operands)
        if len(arrays) < len(operands) or dtype is None:
            return None
        try:
            found = of_sizes(op, attrs, arrays, [TensorType(dtype, None)] * outputs)
        except EqsatError:  # Inference reports it with a place.
            return None
    results = [None if x is None else _stored(x, is_moved=operator(op).selects is not None) for x in found]
    known = [x for x in results if x is not None]
    return known if len(known) == outputs else None


def _dtype(op: OpKey, attrs: Attrs, operands: Sequence[ProgramOperand | None]) -> ir.DataType | None:
    """The type of numbers among the results; None for a conversion to a type that no array of sizes has."""
    to = ir.DataType.INT64
    if op == CAST_LIKE:
        like = operands[1]
        to = None if like is None else to if is_sizes(like) else to_dtype(like.dtype)
    elif op == CAST:
        to = ir.DataType(dict(attrs)["to"])
    return to if to in (ir.DataType.INT64, ir.DataType.BOOL) else None


def _stored(value: np.ndarray, *, is_moved: bool) -> np.ndarray | None:
    """A result as an operand; None if an element is unknown, or neither a size nor a truth value."""
    flat = value.reshape(-1).tolist()
    if not flat:
        # Nothing tells comparisons of nothing from sums.
        return value.astype(np.int64) if is_moved else None
    is_bool = isinstance(flat[0], bool)
    if not all(isinstance(x, bool) == is_bool and isinstance(x, int | Size) for x in flat):
        return None
    found = settled(value, ir.DataType.BOOL if is_bool else ir.DataType.INT64)
    return None if found is None or None in found.reshape(-1).tolist() else found


def elements(array: np.ndarray) -> list[int]:
    """Numbers and free sizes, row by row."""
    return [x if isinstance(x, Size) else int(x) for x in array.reshape(-1)]


def result_shapes(
    op: OpKey, attributes: Mapping[str, Any], operands: Sequence[ProgramOperand | None], count: int
) -> list[tuple[int, ...]] | None:
    """The shapes of an operator's results if its operands say them, otherwise None.

    Args:
        op: The operator.
        attributes: All of its attributes.
        operands: Tensors, constants and arrays of sizes.
        count: Number of its results.
    """
    sized = [None if x is None else SizedOperand([*x.shape], _numbers(x)) for x in operands]
    found = result_dims(op, attributes, sized, count)
    shapes = [] if found is None else [tuple(s) for s in found[:count] if s is not None and None not in s]
    return shapes if len(shapes) == count else None


def _numbers(x: ProgramOperand) -> np.ndarray | None:
    return x if isinstance(x, np.ndarray) and x.dtype.kind in "iufO" else None
