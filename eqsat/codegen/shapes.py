"""The shapes of tensors with free sizes: from the types of a plan, or from what the model computes as a shape."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import onnx_ir as ir

from eqsat.codegen.program import ProgramOperand, ProgramTensor
from eqsat.codegen.shape_arithmetic import is_sizes, result_shapes
from eqsat.errors import ModelError
from eqsat.model.inference.infer import infer_types
from eqsat.ops.operators import has, operator
from eqsat.ops.traits import Trait
from eqsat.schema.attributes import plain
from eqsat.schema.dimension import size_of
from eqsat.schema.free_sizes import FreeSizes
from eqsat.schema.size import Undecided, closer_bounds
from eqsat.schema.size_questions import as_dim
from eqsat.schema.types import Attrs, OpKey, TensorType, type_of_array

KNOWING_SIZES = frozenset({"Pad", "Resize", "Slice", "Split"})
"""Operators whose kernels take sizes as operands."""
_OF_PARTS = frozenset({"Concat", "Slice"})
"""Operators whose results have sums or differences of sizes, which may be known although no operand holds sizes."""


def sizes_operand(op: OpKey) -> int | None:
    """The operand that holds sizes of the result, None where there is none."""
    return operator(op).shaped_by[0] if has(op, Trait.TAKES_SIZES) else None


class Shapes:
    """Knows the free sizes of a program.

    Attributes:
        received: The free sizes that the program receives, by symbol.
        free: These and the sizes found so far; inference knows their ranges.

    Args:
        received: The free sizes that the program receives, by symbol.
    """

    def __init__(self, received: FreeSizes) -> None:
        self.received = received
        self.free = dict(received)

    def of(self, kind: TensorType) -> tuple[int, ...] | str:
        """The dimensions as numbers and free sizes, or what is wrong with them."""
        shape = self._sizes(kind)
        if not isinstance(shape, str) and any(closer_bounds(n)[0] < 0 for n in shape):
            return f"of a size that may be negative, {kind} (raise the least size with --dim)"
        return shape

    def _sizes(self, kind: TensorType) -> tuple[int, ...] | str:
        if kind.shape is None or (not kind.is_static and not self.free):
            return f"of unknown size, {kind} (set sizes with --dim)"
        try:
            shape = tuple(size_of(-1 if d is None else d, self.free) for d in kind.shape)
        except Undecided as undecided:
            return f"of unknown size, {kind}: {undecided} (set sizes with --dim)"
        return f"of unknown size, {kind} (set sizes with --dim)" if None in kind.shape else shape

    def is_known(self, kind: TensorType | None) -> bool:
        """Whether a type is as precise as C needs it."""
        return kind is not None and (kind.is_static or not isinstance(self.of(kind), str))

    def better(self, inferred: TensorType | None, other: TensorType | None) -> TensorType | None:
        """The inferred type, unless only the other one says the sizes."""
        says = other is not None and not self.is_known(inferred) and not isinstance(self._sizes(other), str)
        return other if says else inferred

    def are_known(self, kinds: Sequence[TensorType | None], used: Sequence[bool]) -> bool:
        """Whether the types of all results that have readers are."""
        return all(self.is_known(kind) for kind, is_used in zip(kinds, used, strict=False) if is_used)

    def completed(
        self,
        op: OpKey,
        attrs: Attrs,
        operands: Sequence[ProgramOperand | None],
        types: list[TensorType | None],
        used: Sequence[bool],
        place: str,
    ) -> list[TensorType | None]:
        """Types of the results, inferred where one that has readers is not known."""
        if self.are_known(types, used):
            return types
        inferred = _inferred(op, attrs, operands, len(used), place)
        return types if inferred is None else [self.better(i, t) for i, t in zip(inferred, types, strict=True)]

    def as_results(
        self,
        op: OpKey,
        attrs: Attrs,
        operands: list[ProgramOperand | None],
        types: list[TensorType | None],
    ) -> tuple[list[TensorType | None], list[ProgramOperand | None]]:
        """Types of the results as far as an operand says them, and the operands that are then needed.

        The shape of the result says what an operand of ``Reshape`` and ``Expand`` says, and more.
        """
        number, of_parts = sizes_operand(op), not op.domain and op.name in _OF_PARTS
        if not (of_parts or (number is not None and any(map(is_sizes, operands)))):
            return types, operands
        if not all(map(self.is_known, types)):
            shapes = result_shapes(op, plain(attrs), operands, len(types))
            inferred = None if shapes is None else _inferred(op, attrs, operands, len(types))
            if shapes is not None and inferred is not None:
                types = [
                    t if t is None else TensorType(t.dtype, tuple(map(as_dim, s)))
                    for t, s in zip(inferred, shapes, strict=True)
                ]
        if number is None or op.name in KNOWING_SIZES or number + 1 < len(operands):
            return types, operands
        return types, operands[:number] if all(map(self.is_known, types)) else operands


def _inferred(
    op: OpKey, attrs: Attrs, operands: Sequence[ProgramOperand | None], count: int, place: str = ""
) -> Sequence[TensorType | None] | None:
    """The types of an operator's results without what sizes in its operands say; None if they do not fit together."""
    values = [x if isinstance(x, np.ndarray) and not is_sizes(x) else None for x in operands]
    try:
        return infer_types(op, attrs, [operand_type(x) for x in operands], values, count, place=place)
    except ModelError:
        return None


def operand_type(operand: ProgramOperand | None) -> TensorType | None:
    """The type of an operand; free sizes are expressions of symbols."""
    if operand is None:
        return None
    if isinstance(operand, ProgramTensor):
        return TensorType(operand.dtype, tuple(map(as_dim, operand.shape)))
    if is_sizes(operand):
        return TensorType(ir.DataType.INT64, operand.shape)
    return type_of_array(operand)
