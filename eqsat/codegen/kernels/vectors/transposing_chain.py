"""Chains of elementwise operators whose operands lie across the result: one copies them by tiles, and reads the tiles.

A vector along the innermost axis of the result would be loaded from such an operand element by element, each from a
cache line of its own, of which the rest is needed only when the next rows are computed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel import View
from eqsat.schema.size_questions import is_free
from eqsat.schema.types import Shape

ROWS, COLUMNS = 16, 64
"""Of a tile: a cache line of the operand, and some vectors of the result."""
_MOST = 4
"""Operands that have tiles, so that tiles stay in the cache."""
_LEAST, _WORTH = 4, 256
"""Elements of either axis, and of both, that are worth a tile's memory."""


@dataclass(frozen=True, slots=True)
class Crossing:
    """How operands lie across the result.

    Attributes:
        axis: Of the result, along which they are contiguous.
        names: Their pointers.
    """

    axis: int
    names: tuple[str, ...]


def crossing(y: View, strides: Mapping[str, Shape], types: Mapping[str, ir.DataType], isa: Isa) -> Crossing | None:
    """The operands that are read by tiles; None if there are none, or nothing is won.

    Args:
        y: The result.
        strides: Of each operand along the axes of the result.
        types: Of the operands.
        isa: Instruction set.
    """
    inner = y.rank - 1
    if isa.lanes() == 1 or inner < 1 or y.strides[inner] != 1 or is_free(y.shape[inner]):
        return None
    axis = -1
    names: list[str] = []
    for name, own in strides.items():
        if types[name] != ir.DataType.FLOAT or is_free(own[inner]) or own[inner] in (0, 1):
            continue
        along = next((a for a in range(inner) if own[a] == 1 and not is_free(y.shape[a])), -1)
        axis = along if axis < 0 else axis
        if along >= 0 and along == axis and len(names) < _MOST:
            names.append(name)
    if not names or min(y.shape[axis], y.shape[inner]) < _LEAST or y.shape[axis] * y.shape[inner] < _WORTH:
        return None
    return Crossing(axis, tuple(names))


def in_tiles(strides: Shape) -> Shape:
    """The strides of an operand inside a tile; only the innermost matters."""
    return (*strides[:-1], 1)


def place(name: str, tiles: Sequence[str], strides: Shape, axis: int) -> str:
    """Pointer of an operand in row ``r`` and column ``c`` of a tile; in memory if it has no tile."""
    if name in tiles:
        return f"{name}t + r * {COLUMNS} + c"
    moves = "".join(f" + {i} * {s}" for i, s in (("r", strides[axis]), ("c", strides[-1])) if s)
    return f"{name}q{moves}"
