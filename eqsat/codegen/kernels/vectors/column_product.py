"""Products of a matrix and a column, in vectors along the reduction.

With one column, vectors of columns would have one lane in use. The rows of the left matrix and the column are
contiguous, so that vectors lie along the reduction instead, and each element of the matrix is read once.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

from eqsat.codegen import c_types
from eqsat.codegen.isa import Isa
from eqsat.codegen.kernel_text import render
from eqsat.codegen.kernels.shared.nests import Axis, NestLoop, loops_over, moves_of
from eqsat.codegen.kernels.shared.tiling import split
from eqsat.codegen.kernels.vectors.epilogue import VectorEpilogue, store


@dataclass(frozen=True, slots=True)
class ColumnProduct:
    """A product of a matrix and a column.

    Attributes:
        left: Name of the pointer to the matrix.
        right: Name of the pointer to the column.
        axes: Those of the result but the last, outermost first; the innermost are the rows of the matrix.
        steps: Of the reduction.
        bias: Added to each sum.
    """

    left: str
    right: str
    axes: Sequence[Axis]
    steps: int
    bias: float


@dataclass(frozen=True, slots=True)
class RowGroups:
    """Groups of equally many rows."""

    rows: int
    loops: list[NestLoop]
    pointers: list[tuple[str, str]]
    lines: list[str]


def write(problem: ColumnProduct, epilogue: VectorEpilogue, isa: Isa) -> str:
    """The kernel's body, with ``@`` for the name of the instruction set.

    Args:
        problem: What is computed.
        epilogue: The steps applied to the sums, in vectors along the rows.
        isa: Instruction set.
    """
    *outer, rows = problem.axes
    names = [problem.left, problem.right, *epilogue.strides, "y0"]
    parts = []
    for first, size, count in split(rows.extent, isa.lanes()):
        groups = Axis(count, {name: size * rows.stride(name) for name in names})
        loops = [loop for loop in loops_over("n", [*outer, groups]) if loop.extent != 1]
        pointers = []
        for name in names:
            start = first * rows.stride(name)
            pointers.append((name, moves_of(name, loops) + (f" + {start}" if start else "")))
        lines, result = epilogue.write("c", lambda name: f"{name}p", size)
        parts.append(RowGroups(size, loops, pointers, [*lines, store("y0p", result, rows.stride("y0"), size, isa)]))
    return render(
        "vectors/column_product.c.jinja",
        parts=parts,
        left=problem.left,
        right=problem.right,
        row=rows.stride(problem.left),
        steps=problem.steps,
        lanes=isa.lanes(),
        bias=c_types.literal(problem.bias, ir.DataType.FLOAT) if problem.bias else "",
    )
