"""The shapes of tensors with free sizes: from the types of a plan, or from what the model computes as a shape."""

from __future__ import annotations

import onnx_ir as ir

from eqsat.codegen.program import Operand, Tensor
from eqsat.codegen.shape_values import is_sizes, result_shape
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.size import Undecided, bounds
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import OpKey, TensorType


class Shapes:
    """Knows the free sizes of a program.

    Args:
        free: By symbol; empty where all sizes are numbers.
    """

    def __init__(self, free: FreeSizes) -> None:
        self.free = free

    def of(self, kind: TensorType) -> tuple[int, ...] | str:
        """The dimensions as numbers and free sizes, or what is wrong with them."""
        if kind.shape is None or (not kind.is_static and not self.free):
            return f"of unknown size, {kind} (set sizes with --dim)"
        try:
            shape = tuple(size_of(-1 if d is None else d, self.free) for d in kind.shape)
        except Undecided as undecided:
            return f"of unknown size, {kind}: {undecided} (set sizes with --dim)"
        if -1 in shape:
            return f"of unknown size, {kind} (set sizes with --dim)"
        if any(bounds(n)[0] < (0 if isinstance(n, int) else 1) for n in shape):
            return f"that may be empty, {kind} (raise the least size with --dim)"
        return shape

    def is_known(self, kind: TensorType | None) -> bool:
        """Whether a type is as precise as C needs it."""
        return kind is not None and (kind.is_static or not isinstance(self.of(kind), str))

    def as_results(
        self, op: OpKey, operands: list[Operand | None], types: list[TensorType | None]
    ) -> tuple[list[TensorType | None], list[Operand | None]]:
        """Types of the results as far as an operand says them, and the operands that are then needed.

        The shape of the result says what an operand of ``Reshape`` and ``Expand`` says, and more.
        """
        shaping = op in (OpKey("", "Reshape"), OpKey("", "Expand"))
        slicing = op == OpKey("", "Slice")
        first = type_of(operands[0]) if operands else None
        if first is None or not (slicing or (shaping and any(map(is_sizes, operands)))):
            return types, operands
        if not self.is_known(types[0]):
            try:
                shape = result_shape(op, operands)
            except Undecided:
                shape = None
            types = types if shape is None else [TensorType(first.dtype, tuple(map(as_dim, shape)))]
        return types, operands[:1] if shaping and self.is_known(types[0]) else operands


def type_of(operand: Operand | None) -> TensorType | None:
    """The type of an operand; free sizes are expressions of symbols."""
    if operand is None:
        return None
    if isinstance(operand, Tensor):
        return TensorType(operand.dtype, tuple(map(as_dim, operand.shape)))
    if is_sizes(operand):
        return TensorType(ir.DataType.INT64, operand.shape)
    if operand.dtype == object or operand.dtype.kind in "US":
        return TensorType(ir.DataType.STRING, operand.shape)
    return TensorType(ir.DataType.from_numpy(operand.dtype), operand.shape)
